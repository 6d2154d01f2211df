"""Frontier: quality against size, as points over budgets and methods; saved as `results.json`, printed by `tables`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

from thresher._internal.settings import config_from_mapping
from thresher._internal.storage.files import read_json, write_json
from thresher.errors import ConfigError, FormatError, ThresherError

if TYPE_CHECKING:
    from thresher.training.metrics import Metrics

FORMAT_VERSION = 1
Split = Literal["validation", "test"]
SPLITS: tuple[Split, ...] = ("validation", "test")
MEASURES = (
    *(f"{split}_{name}" for split in SPLITS for name in ("auc", "logloss", "calibration", "rare_auc")),
    "floor_gain", "floor_gain_error",
)  # fmt: skip
"""What is averaged over seeds."""


@dataclass(frozen=True, kw_only=True)
class FrontierPoint:
    """One trained model: its size and its quality. `None` means "not measured"."""

    label: str  # the method, e.g. `pep`, or `dense`; points of one label form one line of a figure
    budget: str | None = None
    num_parameters: int  # embedding parameters kept; first-order weights count only if they were pruned, too
    storage_bytes: int  # everything a lookup in the searched tables needs: values and indices
    bundle_bytes: int | None = None  # everything a prediction loads: all tables, the network, the vocabularies
    validation_auc: float
    validation_logloss: float
    validation_calibration: float | None = None  # mean prediction / mean label; 1 is calibrated on average
    validation_rare_auc: float | None = None  # AUC over the rows with the rarest features
    test_auc: float | None = None
    test_logloss: float | None = None
    test_calibration: float | None = None
    test_rare_auc: float | None = None
    floor_gain: float | None = None  # validation AUC above the model without an embedding
    floor_gain_error: float | None = None  # standard error of `floor_gain`, on the same rows
    still_improving: bool | None = None  # whether training ended at `max_epochs`, with its best epoch
    seed: int | None = None  # None for a mean of several seeds
    num_seeds: int | None = None  # of a mean
    validation_auc_sd: float | None = None  # standard deviation over the seeds of a mean
    test_auc_sd: float | None = None

    @classmethod
    def from_metrics(
        cls,
        *,
        label: str,
        budget: str | None,
        seed: int | None,
        num_parameters: int,
        storage_bytes: int,
        validation: "Metrics",
        test: "Metrics | None" = None,
    ) -> "FrontierPoint":
        """A point with the metrics of its splits."""
        point = cls(
            label=label,
            budget=budget,
            seed=seed,
            num_parameters=num_parameters,
            storage_bytes=storage_bytes,
            validation_auc=validation.auc,
            validation_logloss=validation.logloss,
            validation_calibration=_calibration(validation),
            validation_rare_auc=validation.rare_auc,
        )
        if test is None:
            return point
        return replace(
            point,
            test_auc=test.auc,
            test_logloss=test.logloss,
            test_calibration=_calibration(test),
            test_rare_auc=test.rare_auc,
        )

    def auc(self, split: Split) -> float | None:
        return self.validation_auc if split == "validation" else self.test_auc

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "FrontierPoint":
        """Unknown keys are ignored; a missing key or a value of another type raises `FormatError`."""
        if not isinstance(content, Mapping):
            raise FormatError(f"a point is {type(content).__name__}, expected an object. Restore or create it again.")
        known = {item.name for item in fields(cls)}
        try:
            measured = {name: value for name, value in content.items() if name in known and value is not None}
            return config_from_mapping(cls, measured)
        except ConfigError as error:
            raise FormatError(f"incomplete point: {error}") from None


def _calibration(metrics: "Metrics") -> float | None:
    """Mean prediction / mean label; None without positive labels."""
    return metrics.mean_prediction / metrics.mean_label if metrics.mean_label else None


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """Points over budgets (and methods), and what they are compared with: the dense model, and one without embedding.

    Attributes:
        floor: the linear term alone, trained to convergence; None if there is none to compare with.
    """

    points: tuple[FrontierPoint, ...]
    dense: FrontierPoint | None = None
    floor: FrontierPoint | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)  # data set, model, seed, seconds, versions

    def __str__(self) -> str:
        from thresher.report.remarks import remarks
        from thresher.report.tables import plain_table

        return "\n".join([plain_table(self), *remarks(self)])

    def _repr_html_(self) -> str:
        """The table and its remarks, in a notebook."""
        from thresher.report.tables import frontier_html

        return frontier_html(self)

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
            "floor": None if self.floor is None else self.floor.to_json(),
            "points": [point.to_json() for point in self.points],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Frontier":
        version = content.get("format_version")
        if version != FORMAT_VERSION:
            raise FormatError(f"results have format version {version!r}. This release reads version {FORMAT_VERSION}.")
        dense, floor = content.get("dense"), content.get("floor")
        own = {"format_version", "dense", "floor", "points"}
        metadata = {key: value for key, value in content.items() if key not in own}
        points = content.get("points", [])
        if not isinstance(points, list):
            raise FormatError(f"points is {type(points).__name__}, expected a list. Restore or create it again.")
        return cls(
            points=tuple(FrontierPoint.from_json(point) for point in points),
            dense=None if dense is None else FrontierPoint.from_json(dense),
            floor=None if floor is None else FrontierPoint.from_json(floor),
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


def mean_points(points: Sequence[FrontierPoint]) -> list[FrontierPoint]:
    """One point per label and budget (or size): the mean of its seeds, with the standard deviation of its AUC."""
    groups: dict[tuple[str, str], list[FrontierPoint]] = {}
    for point in points:
        groups.setdefault((point.label, point.budget or str(point.num_parameters)), []).append(point)
    return [_mean(group) for group in groups.values()]


def _mean(points: Sequence[FrontierPoint]) -> FrontierPoint:
    first, *others = points
    if not others:
        return first
    means: dict[str, Any] = {"seed": None, "num_seeds": len(points)}
    for name in MEASURES:
        values = [getattr(point, name) for point in points]
        if None not in values:
            means[name] = fmean(values)
    for split in SPLITS:
        aucs = [auc for point in points if (auc := point.auc(split)) is not None]
        means[f"{split}_auc_sd"] = stdev(aucs) if len(aucs) > 1 else None
    for name in ("num_parameters", "storage_bytes", "bundle_bytes"):
        sizes = [getattr(point, name) for point in points]
        means[name] = None if None in sizes else round(fmean(sizes))
    means["still_improving"] = any(point.still_improving for point in points) or first.still_improving
    return replace(first, **means)
