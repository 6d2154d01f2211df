"""Results as a person reads them: one row per model, the dense one first; plain text or a rich table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher.report.frontier import Frontier, FrontierPoint

if TYPE_CHECKING:
    from rich.table import Table

ABSENT = "–"
_BYTE_UNITS = (("GB", 10**9), ("MB", 10**6), ("KB", 10**3))


@dataclass(frozen=True)
class Column:
    """A heading of one line or two, and whether its values are numbers (set right)."""

    title: str
    numeric: bool = True


_COLUMNS = (
    Column("budget", numeric=False),
    Column("parameters"),
    Column("bytes"),
    Column("share\nof dense"),
    Column("validation\nAUC"),
    Column("test\nAUC"),
    Column("test\nlogloss"),
    Column("cali-\nbration"),
)


def byte_unit(num_bytes: float) -> tuple[str, int]:
    """The unit an amount is best written in, and its bytes."""
    return next(((unit, size) for unit, size in _BYTE_UNITS if num_bytes >= size), ("B", 1))


def format_bytes(num_bytes: int) -> str:
    """Bytes to three digits, in the units budgets are written in.

    >>> format_bytes(999), format_bytes(228_400), format_bytes(1_050_000_000)
    ('999 B', '228 KB', '1.05 GB')
    """
    unit, size = byte_unit(num_bytes)
    amount = num_bytes / size
    digits = 0 if size == 1 or amount >= 99.95 else 1 if amount >= 9.995 else 2
    return f"{amount:.{digits}f} {unit}"


def format_share(share: float) -> str:
    """A share 0…1 in percent, with as many digits as it takes to tell small ones apart.

    >>> format_share(1), format_share(0.0246), format_share(0.00098)
    ('100 %', '2.5 %', '0.098 %')
    """
    percent = 100 * share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def table_columns(frontier: Frontier) -> tuple[Column, ...]:
    """The columns of a frontier's table; `method` only where the points are of several."""
    several = len({point.label for point in frontier.points}) > 1
    return (Column("method", numeric=False), *_COLUMNS) if several else _COLUMNS


def table_rows(frontier: Frontier) -> list[list[str]]:
    """The cells, dense first, then from large to small."""
    several = len(table_columns(frontier)) > len(_COLUMNS)
    points = sorted(frontier.points, key=lambda point: (point.label if several else "", -point.num_parameters))
    dense = [] if frontier.dense is None else [frontier.dense]
    return [([point.label] if several else []) + _cells(frontier, point) for point in [*dense, *points]]


def plain_table(frontier: Frontier) -> str:
    """The table in spaces alone, for logs and files."""
    columns, rows = table_columns(frontier), table_rows(frontier)
    widths = _widths(columns, rows)
    heads = [_two_lines(column.title) for column in columns]
    lines = [[head[i] for head in heads] for i in range(2)] + [["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column.numeric else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in lines
    )


def rich_table(frontier: Frontier, *, title: str | None = None) -> "Table":
    """The table for a terminal; the recommended row, if the frontier's facts name one, stands out."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    table.pad_edge, table.padding = False, (0, 1, 0, 0)
    for column in table_columns(frontier):
        table.add_column(column.title, justify="right" if column.numeric else "left", vertical="bottom", no_wrap=True)
    recommended = frontier.facts.get("recommended")
    for i, cells in enumerate(table_rows(frontier)):
        is_dense = i == 0 and frontier.dense is not None
        style = "dim" if is_dense else "bold green" if recommended is not None and recommended in cells[:2] else None
        table.add_row(*cells, style=style)
    return table


def _cells(frontier: Frontier, point: FrontierPoint) -> list[str]:
    share = frontier.share_of_dense(point)
    is_dense = point is frontier.dense
    return [
        point.budget or ("dense" if is_dense else ABSENT),
        f"{point.num_parameters:,}",
        format_bytes(point.storage_bytes),
        ABSENT if share is None else format_share(share),
        f"{point.validation_auc:.4f}",
        _number(point.test_auc, 4),
        _number(point.test_logloss, 4),
        _number(point.test_calibration, 3),
    ]


def _number(value: float | None, digits: int) -> str:
    return ABSENT if value is None else f"{value:.{digits}f}"


def _two_lines(title: str) -> tuple[str, str]:
    first, _, second = title.rpartition("\n")
    return first, second


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(*map(len, _two_lines(column.title)), *(len(row[i]) for row in rows)) for i, column in enumerate(columns)
    ]
