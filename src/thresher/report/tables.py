"""Results as tables: plain text, for a terminal, or HTML for a notebook."""

from collections.abc import Sequence
from html import escape
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from thresher._internal.text import align_columns, format_bytes, format_share
from thresher.report.frontier import Frontier, FrontierPoint, mean_points
from thresher.report.remarks import remarks

if TYPE_CHECKING:
    from rich.table import Table

ABSENT = "–"
COLUMNS = (
    "budget", "para-\nmeters", "share\nof dense", "table\nbytes", "bundle\nbytes",
    "vali-\ndation\nAUC", "test\nAUC", "test\nlogloss", "cali-\nbra-\ntion",
)  # fmt: skip
NUM_OPTIONAL = 2
"""Columns at the end of the table that a narrow terminal does not show."""
UNDER_TRAINED = "†"
"""Marks models whose training ended at `max_epochs`."""


def plain_table(frontier: Frontier) -> str:
    """The table as text: the model without an embedding and the dense model first, then large to small."""
    titles, rows = frontier_cells(frontier)
    heads = [title.split("\n") for title in titles]
    height = max(map(len, heads))
    heads = [[""] * (height - len(head)) + head for head in heads]
    lines = [*map(list, zip(*heads, strict=True)), ["-" * width for width in _widths(titles, rows)], *rows]
    return align_columns(lines, [title not in ("method", "budget") for title in titles])


def rich_table(frontier: Frontier, *, title: str | None = None, width: int = 80) -> "Table":
    """The table for a terminal; what points are compared with is dim, the recommended one highlighted.

    Calibration and logloss are left out if the table would be wider than `width`.
    """
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    table.pad_edge = False
    titles, rows = frontier_cells(frontier)
    widths = _widths(titles, rows)
    for _ in range(NUM_OPTIONAL):
        if sum(widths) + len(widths) + 1 > width:
            titles, rows, widths = titles[:-1], [row[:-1] for row in rows], widths[:-1]
    table.padding = (0, 1 if sum(widths) + 2 * len(widths) <= width else 0, 0, 0)
    for name in titles:
        is_text = name in ("method", "budget")
        table.add_column(name, justify="left" if is_text else "right", vertical="bottom", no_wrap=True)
    recommended = frontier.metadata.get("recommended")
    num_references = sum(point is not None for point in (frontier.floor, frontier.dense))
    for i, cells in enumerate(rows):
        is_recommended = recommended is not None and recommended in cells[:2]
        table.add_row(*cells, style="dim" if i < num_references else "bold green" if is_recommended else None)
    return table


def frontier_html(frontier: Frontier) -> str:
    """The table of `plain_table` and the remarks below it."""
    titles, rows = frontier_cells(frontier)
    head = "".join(f"<th>{escape(title.replace('-' + chr(10), '').replace(chr(10), ' '))}</th>" for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    below = "".join(f"<p>{escape(remark)}</p>" for remark in remarks(frontier))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def comparison_table(points: Sequence[FrontierPoint], budgets: Sequence[str]) -> str:
    """Test AUC (mean ± standard deviation over seeds) by method and budget as text; the best of a budget has a star."""
    cells: dict[tuple[str, str | None], list[float]] = {}
    unfinished = {(point.label, point.budget) for point in points if point.still_improving}
    for point in points:
        if point.test_auc is not None:
            cells.setdefault((point.label, point.budget), []).append(point.test_auc)
    rows = [["method", *budgets]]
    for method in dict.fromkeys(point.label for point in points):
        row = [method]
        for budget in budgets:
            aucs = cells.get((method, budget))
            if not aucs:
                row.append(ABSENT)
                continue
            best = max(fmean(others) for (_, at), others in cells.items() if at == budget)
            spread = f" ± {stdev(aucs):.4f}" if len(aucs) > 1 else ""
            star = "*" if fmean(aucs) == best else " "
            row.append(f"{fmean(aucs):.4f}{spread}{star}{UNDER_TRAINED if (method, budget) in unfinished else ''}")
        rows.append(row)
    return align_columns(rows, [False] * len(rows[0]))


def bytes_table(points: Sequence[FrontierPoint], budgets: Sequence[str]) -> str:
    """Bundle bytes and, in brackets, the bytes of the searched tables, by method and budget: means over seeds."""
    means = {(point.label, point.budget): point for point in mean_points(points) if point.budget is not None}
    rows = [["method", *budgets]]
    for method in dict.fromkeys(label for label, _ in means):
        found = [means.get((method, budget)) for budget in budgets]
        rows.append([method, *(ABSENT if point is None else _bytes(point) for point in found)])
    return align_columns(rows, [False] * len(rows[0]))


def _bytes(point: FrontierPoint) -> str:
    whole = ABSENT if point.bundle_bytes is None else format_bytes(point.bundle_bytes)
    return f"{whole} ({format_bytes(point.storage_bytes)})"


def _widths(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, [*title.split("\n"), *column])) for title, *column in zip(titles, *rows, strict=True)]


def frontier_cells(frontier: Frontier) -> tuple[list[str], list[list[str]]]:
    """Titles, with line breaks, and the rows of the table."""
    several = len({point.label for point in frontier.points}) > 1
    points = sorted(frontier.points, key=lambda point: (point.label if several else "", -point.num_parameters))
    references = [point for point in (frontier.floor, frontier.dense) if point is not None]
    rows = [([point.label] if several else []) + _cells(frontier, point) for point in [*references, *points]]
    return [*(["method"] if several else []), *COLUMNS], rows


def _cells(frontier: Frontier, point: FrontierPoint) -> list[str]:
    share = frontier.share_of_dense(point)
    is_reference = point is frontier.floor or point is frontier.dense
    mark = UNDER_TRAINED if point.still_improving else ""
    return [
        (point.budget or (point.label if is_reference else ABSENT)) + mark,
        f"{point.num_parameters:,}",
        ABSENT if share is None else format_share(share),
        format_bytes(point.storage_bytes),
        ABSENT if point.bundle_bytes is None else format_bytes(point.bundle_bytes),
        _auc(point.validation_auc, point.validation_auc_sd),
        _auc(point.test_auc, point.test_auc_sd),
        _number(point.test_logloss, 4),
        _number(point.test_calibration, 3),
    ]


def _auc(auc: float | None, deviation: float | None) -> str:
    """An AUC, with its standard deviation if it is a mean over seeds."""
    return _number(auc, 4) if deviation is None else f"{_number(auc, 4)} ± {deviation:.4f}"


def _number(value: float | None, digits: int) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"
