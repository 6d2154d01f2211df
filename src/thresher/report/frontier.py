"""Frontier: quality against size, as points over budgets and methods; saved as `results.json`, printed as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

from thresher._internal.files import read_json, write_json
from thresher._internal.text import align_columns, format_bytes, format_share
from thresher.errors import FormatError, ThresherError

if TYPE_CHECKING:
    from rich.table import Table

    from thresher.training.metrics import Metrics

FORMAT_VERSION = 1
Split = Literal["validation", "test"]
ABSENT = "–"
COLUMNS = (
    "budget", "parameters", "bytes", "share\nof dense",
    "validation\nAUC", "test\nAUC", "test\nlogloss", "cali-\nbration",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class FrontierPoint:
    """One trained model: its size and its quality. `None` means "not measured"."""

    label: str  # the method, e.g. `pep`, or `dense`; points of one label form one line of a figure
    budget: str | None = None
    num_parameters: int  # embedding parameters kept; first-order weights count only if they were pruned, too
    storage_bytes: int  # everything a lookup needs: values and indices
    validation_auc: float
    validation_logloss: float
    validation_calibration: float | None = None  # mean prediction / mean label; 1 is calibrated on average
    validation_rare_auc: float | None = None  # AUC over the rows with the rarest features
    test_auc: float | None = None
    test_logloss: float | None = None
    test_calibration: float | None = None
    test_rare_auc: float | None = None
    seed: int | None = None

    @classmethod
    def from_metrics(cls, *, validation: "Metrics", test: "Metrics | None" = None, **others: Any) -> "FrontierPoint":
        """A point with the metrics of its splits; `others` are the other fields."""
        for split, metrics in (("validation", validation), ("test", test)):
            if metrics is not None:
                others[f"{split}_auc"] = metrics.auc
                others[f"{split}_logloss"] = metrics.logloss
                others[f"{split}_rare_auc"] = metrics.rare_auc
                if metrics.mean_label:
                    others[f"{split}_calibration"] = metrics.mean_prediction / metrics.mean_label
        return cls(**others)

    def auc(self, split: Split) -> float | None:
        return self.validation_auc if split == "validation" else self.test_auc

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "FrontierPoint":
        """Unknown keys are ignored; a missing key raises `FormatError`."""
        known = {item.name for item in fields(cls)}
        try:
            return cls(**{name: value for name, value in content.items() if name in known})
        except TypeError as error:
            raise FormatError(f"incomplete point: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """Points over budgets (and methods), and the dense model they are compared with."""

    points: tuple[FrontierPoint, ...]
    dense: FrontierPoint | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)  # data set, model, seed, seconds, versions

    def __str__(self) -> str:
        return plain_table(self)

    def share_of_dense(self, point: FrontierPoint) -> float | None:
        """Kept parameters as a share of the dense model's, 0…1."""
        return point.num_parameters / self.dense.num_parameters if self.dense and self.dense.num_parameters else None

    def best(self) -> tuple[FrontierPoint, ...]:
        """The best point of each size, smallest first: no smaller or equal point has at least its validation AUC."""
        best: list[FrontierPoint] = []
        for point in sorted(self.points, key=lambda point: (point.num_parameters, -point.validation_auc)):
            if not best or point.validation_auc > best[-1].validation_auc:
                best.append(point)
        return tuple(best)

    def smallest_within(self, max_auc_drop: float) -> FrontierPoint | None:
        """The smallest point whose validation AUC is at most `max_auc_drop` below the dense model's."""
        if self.dense is None:
            raise ThresherError("the frontier has no dense model to compare with. Train one in the same run.")
        floor = self.dense.validation_auc - max_auc_drop
        return next((point for point in self.best() if point.validation_auc >= floor), None)

    def to_json(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            **self.metadata,
            "dense": None if self.dense is None else self.dense.to_json(),
            "points": [point.to_json() for point in self.points],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Frontier":
        version = content.get("format_version")
        if version != FORMAT_VERSION:
            raise FormatError(f"results have format version {version!r}. This release reads version {FORMAT_VERSION}.")
        dense = content.get("dense")
        metadata = {key: value for key, value in content.items() if key not in {"format_version", "dense", "points"}}
        return cls(
            points=tuple(FrontierPoint.from_json(point) for point in content.get("points", ())),
            dense=None if dense is None else FrontierPoint.from_json(dense),
            metadata=metadata,
        )

    def save(self, path: str | Path) -> None:
        write_json(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> "Frontier":
        content = read_json(Path(path))
        try:
            return cls.from_json(content)
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from None


def plain_table(frontier: Frontier) -> str:
    """The table as text: the dense model first, then large to small."""
    titles, rows = _cells_of_table(frontier)
    heads = [title.rpartition("\n") for title in titles]
    widths = [
        max(len(line) for line in [*title.split("\n"), *column]) for title, *column in zip(titles, *rows, strict=True)
    ]
    lines = [[first for first, _, _ in heads], [last for _, _, last in heads], ["-" * width for width in widths], *rows]
    return align_columns(lines, [title not in ("method", "budget") for title in titles])


def rich_table(frontier: Frontier, *, title: str | None = None) -> "Table":
    """The table for a terminal; the dense row is dim, the recommended one highlighted."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    table.pad_edge, table.padding = False, (0, 1, 0, 0)
    titles, rows = _cells_of_table(frontier)
    for name in titles:
        is_text = name in ("method", "budget")
        table.add_column(name, justify="left" if is_text else "right", vertical="bottom", no_wrap=True)
    recommended = frontier.metadata.get("recommended")
    for i, cells in enumerate(rows):
        is_dense = i == 0 and frontier.dense is not None
        style = "dim" if is_dense else "bold green" if recommended is not None and recommended in cells[:2] else None
        table.add_row(*cells, style=style)
    return table


def comparison_table(points: Sequence[FrontierPoint], budgets: Sequence[str]) -> str:
    """Test AUC (mean ± standard deviation over seeds) by method and budget as text; the best of a budget has a star."""
    cells: dict[tuple[str, str | None], list[float]] = {}
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
            row.append(f"{fmean(aucs):.4f}{spread}{'*' if fmean(aucs) == best else ' '}")
        rows.append(row)
    return align_columns(rows, [False] * len(rows[0]))


def _cells_of_table(frontier: Frontier) -> tuple[list[str], list[list[str]]]:
    several = len({point.label for point in frontier.points}) > 1
    points = sorted(frontier.points, key=lambda point: (point.label if several else "", -point.num_parameters))
    dense = [] if frontier.dense is None else [frontier.dense]
    rows = [([point.label] if several else []) + _cells(frontier, point) for point in [*dense, *points]]
    return [*(["method"] if several else []), *COLUMNS], rows


def _cells(frontier: Frontier, point: FrontierPoint) -> list[str]:
    share = frontier.share_of_dense(point)
    return [
        point.budget or ("dense" if point is frontier.dense else ABSENT),
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
