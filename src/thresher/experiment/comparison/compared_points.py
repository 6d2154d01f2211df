"""ComparedPoint: the result file of one model of a comparison; all of them as figures and as text."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from thresher import __version__
from thresher._internal.storage.files import read_json, write_json
from thresher.errors import FormatError
from thresher.experiment.comparison.compare_config import RIVAL
from thresher.models.model_registry import FLOOR
from thresher.report.frontier import FrontierPoint, mean_points
from thresher.report.plots import plot_comparison
from thresher.report.remarks import embedding_gain, rival_wins
from thresher.report.tables import UNDER_TRAINED, bytes_table, comparison_table

_KINDS: Mapping[str, type] = {
    "source": str, "model": str, "method": str, "config": dict, "seed": int, "trials": list, "versions": dict,
    "machine": dict,
}  # fmt: skip
"""Types of what a point has beside sizes and metrics."""


@dataclass(frozen=True, kw_only=True)
class ComparedPoint:
    """One model of one method at one budget and seed: the content of `points/*.json`.

    Attributes:
        config: the method's settings, the best on validation of those tried.
        budget: None for the widths of a uniform table and for the floor.
        seconds: of search and retraining; a search counts in full for each of its budgets.
        teacher_share: weight of the teacher's predictions; the training of the teacher is in no point's seconds.
        trials: settings tried on the first seed with their validation AUC, or why they cannot meet the budget.
        bundle_bytes: bytes of everything a prediction loads: all tables, the network, the vocabularies.
        floor_gain: validation AUC above the floor's of the same seed; `floor_gain_error` is its standard error.
        still_improving: whether training ended at `max_epochs` instead of by early stopping.
        test_auc_error: standard error of `test_auc`.
        equal_bytes_of: of the rival: the method whose bytes it has.
    """

    source: str
    model: str
    method: str
    config: Mapping[str, Any]
    seed: int
    budget: str | None
    num_parameters: int
    storage_bytes: int
    validation_auc: float
    validation_logloss: float
    test_auc: float
    test_logloss: float
    seconds: float
    search_seconds: float
    search_epochs: int
    retrain_seconds: float
    retrain_epochs: float
    teacher_share: float
    trials: list[Mapping[str, Any]]
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    bundle_bytes: int | None = None
    floor_gain: float | None = None
    floor_gain_error: float | None = None
    still_improving: bool | None = None
    test_auc_error: float | None = None
    equal_bytes_of: str | None = None

    def save(self, path: Path) -> None:
        write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> "ComparedPoint":
        content = read_json(path)
        try:
            FrontierPoint.from_json({"label": "", **content})  # sizes and metrics
            if wrong := [name for name, kind in _KINDS.items() if not isinstance(content[name], kind)]:
                raise FormatError(f"{wrong[0]} is {type(content[wrong[0]]).__name__}")
            return cls(**{i.name: content[i.name] for i in fields(cls) if i.default is MISSING or i.name in content})
        except KeyError as error:
            raise FormatError(f"{path} is not a result of a comparison: {error} is missing. Delete it.") from None
        except FormatError as error:
            raise FormatError(f"{path} is not a result of a comparison: {error}. Delete it.") from None

    def frontier_point(self) -> FrontierPoint:
        return FrontierPoint(
            label=self.method,
            budget=self.budget,
            num_parameters=self.num_parameters,
            storage_bytes=self.storage_bytes,
            validation_auc=self.validation_auc,
            validation_logloss=self.validation_logloss,
            test_auc=self.test_auc,
            test_logloss=self.test_logloss,
            bundle_bytes=self.bundle_bytes,
            floor_gain=self.floor_gain,
            floor_gain_error=self.floor_gain_error,
            still_improving=self.still_improving,
            seed=self.seed,
        )


def load_points(folder: Path) -> list[ComparedPoint]:
    """Every point under a folder, sorted by model, method, size and seed."""
    points = [ComparedPoint.load(path) for path in sorted(folder.rglob("*.json"))]
    return sorted(points, key=lambda point: (point.model, point.method, -point.num_parameters, point.seed))


def versions() -> dict[str, str]:
    names = ("torch", "numpy", "numba")
    return {"thresher": __version__, "python": platform.python_version()} | {name: version(name) for name in names}


def machine() -> dict[str, Any]:
    import torch

    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def draw_comparison(points: Sequence[ComparedPoint], stem_of: Callable[[str], Path]) -> list[Path]:
    """Draw one figure per model with the frontier of every method; the model without an embedding is a line in each.

    Args:
        stem_of: model → path of its figure, without suffix.
    """
    below = [point.frontier_point() for point in points if point.model == FLOOR]
    figures: list[Path] = []
    for model in compared_models(points):
        of_model = [point.frontier_point() for point in points if point.model == model]
        errors = [point.test_auc_error for point in points if point.model == model and point.test_auc_error]
        figures += plot_comparison(
            of_model,
            stem_of(model),
            floor=below,
            noise=fmean(errors) if errors else None,
            title=f"{points[0].source} · {model}",
        )
    return figures


def compared_models(points: Sequence[ComparedPoint]) -> list[str]:
    """The models of the points, without the floor."""
    return list(dict.fromkeys(point.model for point in points if point.model != FLOOR))


def comparison_text(points: Sequence[ComparedPoint], budgets: Sequence[str]) -> str:
    """Test AUC and bytes by method and budget, one block per model."""
    return "\n\n".join(model_texts(points, budgets).values())


def model_texts(points: Sequence[ComparedPoint], budgets: Sequence[str]) -> dict[str, str]:
    """Model → its tables and remarks."""
    aucs = [point.test_auc for point in points if point.model == FLOOR]
    floor = f"; logistic regression without embedding: {fmean(aucs):.4f}" if aucs else ""
    blocks = {}
    for model in compared_models(points):
        compared = [point for point in points if point.model == model]
        of_model = [point.frontier_point() for point in compared]
        rivalled = dict.fromkeys(point.equal_bytes_of for point in compared if point.equal_bytes_of is not None)
        title = f"{model}: test AUC by budget, the best with a star{floor}"
        sizes = f"Bytes of everything that a prediction loads:\n{bytes_table(of_model, budgets)}"
        sentences = [
            *(rival_wins(of_model, method, RIVAL) for method in rivalled),
            embedding_gain(mean_points(of_model)),
        ]
        notes = [sentence for sentence in sentences if sentence]
        if any(point.still_improving for point in of_model):
            notes.append(f"{UNDER_TRAINED} not converged when training ended (training.max_epochs).")
        blocks[model] = "\n".join([title, comparison_table(of_model, budgets), sizes, *notes])
    return blocks
