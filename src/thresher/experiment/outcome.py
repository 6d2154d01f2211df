"""A finished training of a run: its point on the frontier, and the end of its folder."""

from pathlib import Path

from thresher._internal.files import write_json
from thresher.experiment.retrain import Trained
from thresher.report.frontier import FrontierPoint
from thresher.training.epochs import CHECKPOINT


def point_of(trained: Trained, *, label: str, budget: str | None, seed: int) -> FrontierPoint:
    return FrontierPoint.from_metrics(
        label=label,
        budget=budget,
        num_parameters=trained.num_parameters,
        storage_bytes=trained.storage_bytes,
        validation=trained.fit.validation,
        test=trained.test,
        seed=seed,
    )


def finish(folder: Path, point: FrontierPoint) -> None:
    """A stage is done once its point is written; its checkpoints are of no more use."""
    write_json(folder / "point.json", point.to_json())
    for checkpoint in folder.rglob(CHECKPOINT):
        checkpoint.unlink()
