"""Frontier: what size costs in accuracy, as points over budgets and methods; saved as a run's `results.json`.

Plain data read from and written to JSON.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, Protocol

from thresher._internal.files import read_json, write_json
from thresher.errors import FormatError, ThresherError

FORMAT_VERSION = 1
Split = Literal["validation", "test"]


class SplitMetrics(Protocol):
    """What a point needs to know of one split; `thresher.training.metrics.Metrics` has it."""

    @property
    def auc(self) -> float: ...
    @property
    def logloss(self) -> float: ...
    @property
    def mean_prediction(self) -> float: ...
    @property
    def mean_label(self) -> float: ...
    @property
    def rare_auc(self) -> float | None: ...


@dataclass(frozen=True, kw_only=True)
class FrontierPoint:
    """One trained model: its size and how well it predicts. `None` is "not measured"."""

    label: str
    """What made it, e.g. `dense` or `pep`; points of one label are one line of a figure."""
    budget: str | None = None
    num_parameters: int
    """Embedding parameters kept; first-order weights are among them only where they were searched, too."""
    storage_bytes: int
    """Bytes of everything a lookup needs: values and where they belong."""
    validation_auc: float
    validation_logloss: float
    validation_calibration: float | None = None
    """Mean prediction over mean label; 1 is right on average."""
    validation_rare_auc: float | None = None
    """AUC over the rows with the rarest features, where pruning may cost more than on the whole."""
    test_auc: float | None = None
    test_logloss: float | None = None
    test_calibration: float | None = None
    test_rare_auc: float | None = None
    seed: int | None = None

    @classmethod
    def from_metrics(
        cls,
        *,
        label: str,
        num_parameters: int,
        storage_bytes: int,
        validation: SplitMetrics,
        test: SplitMetrics | None = None,
        budget: str | None = None,
        seed: int | None = None,
    ) -> "FrontierPoint":
        return cls(
            label=label,
            budget=budget,
            num_parameters=num_parameters,
            storage_bytes=storage_bytes,
            seed=seed,
            validation_auc=validation.auc,
            validation_logloss=validation.logloss,
            validation_calibration=_calibration(validation),
            validation_rare_auc=validation.rare_auc,
            test_auc=None if test is None else test.auc,
            test_logloss=None if test is None else test.logloss,
            test_calibration=None if test is None else _calibration(test),
            test_rare_auc=None if test is None else test.rare_auc,
        )

    def auc(self, split: Split) -> float | None:
        return self.validation_auc if split == "validation" else self.test_auc

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "FrontierPoint":
        """Keys of later versions are passed over; a missing one is told."""
        known = {item.name for item in fields(cls)}
        try:
            return cls(**{name: value for name, value in content.items() if name in known})
        except TypeError as error:
            raise FormatError(f"a point of a frontier is incomplete: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """Points over budgets (and methods), beside the dense model they are measured against."""

    points: tuple[FrontierPoint, ...]
    dense: FrontierPoint | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else is worth keeping with them: dataset, model, seed, seconds, versions."""

    def __str__(self) -> str:
        """The table of results, as `thresher prune` prints it."""
        from thresher.report.tables import plain_table

        return plain_table(self)

    def share_of_dense(self, point: FrontierPoint) -> float | None:
        """Kept parameters as a share of the dense model's, 0…1."""
        return point.num_parameters / self.dense.num_parameters if self.dense and self.dense.num_parameters else None

    def best(self) -> tuple[FrontierPoint, ...]:
        """The best at each size, smallest first: no other point is as small and at least as good on validation."""
        best: list[FrontierPoint] = []
        for point in sorted(self.points, key=lambda point: (point.num_parameters, -point.validation_auc)):
            if not best or point.validation_auc > best[-1].validation_auc:
                best.append(point)
        return tuple(best)

    def smallest_within(self, max_auc_drop: float) -> FrontierPoint | None:
        """The smallest point whose validation AUC is at most `max_auc_drop` below the dense model's."""
        if self.dense is None:
            raise ThresherError("the frontier has no dense model to compare with; train one in the same run")
        floor = self.dense.validation_auc - max_auc_drop
        return next((point for point in self.best() if point.validation_auc >= floor), None)

    def joined(self, others: Iterable["Frontier"]) -> "Frontier":
        """One frontier of several runs' points; the dense model and the facts stay this one's."""
        points = (*self.points, *(point for other in others for point in other.points))
        return Frontier(points=points, dense=self.dense, facts=self.facts)

    def to_json(self) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            **self.facts,
            "dense": None if self.dense is None else self.dense.to_json(),
            "points": [point.to_json() for point in self.points],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Frontier":
        version = content.get("format_version")
        if version != FORMAT_VERSION:
            raise FormatError(f"results of format version {version}; this release reads version {FORMAT_VERSION}")
        dense = content.get("dense")
        facts = {key: value for key, value in content.items() if key not in {"format_version", "dense", "points"}}
        return cls(
            points=tuple(FrontierPoint.from_json(point) for point in content.get("points", ())),
            dense=None if dense is None else FrontierPoint.from_json(dense),
            facts=facts,
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


def _calibration(metrics: SplitMetrics) -> float | None:
    return metrics.mean_prediction / metrics.mean_label if metrics.mean_label else None
