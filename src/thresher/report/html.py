"""Results in notebooks: tables as HTML, and figures from their files."""

from base64 import b64encode
from collections.abc import Iterable
from html import escape
from pathlib import Path

from thresher.report.frontier import Frontier
from thresher.report.remarks import remarks
from thresher.report.tables import frontier_cells


def frontier_html(frontier: Frontier) -> str:
    """The table of `plain_table` and the remarks below it."""
    titles, rows = frontier_cells(frontier)
    head = "".join(f"<th>{escape(title.replace('-' + chr(10), '').replace(chr(10), ' '))}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    below = "".join(f"<p>{escape(remark)}</p>" for remark in remarks(frontier))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def figures_html(paths: Iterable[Path]) -> str:
    """The figures in PNG files, as images in the page; missing files are left out."""
    images = [b64encode(path.read_bytes()).decode() for path in paths if path.suffix == ".png" and path.exists()]
    return "".join(f'<img style="max-width: 100%" src="data:image/png;base64,{image}">' for image in images)
