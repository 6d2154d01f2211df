"""The dense model of a run: what pruning is measured against, and the first of those that teach it."""

from dataclasses import replace
from pathlib import Path

from thresher._internal.files import read_json
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.table import EncodedTable
from thresher.embeddings.uniform import UniformConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.fresh import new_model, shuffled_batches
from thresher.experiment.outcome import finish, point_of
from thresher.experiment.retrain import Trained, train_model
from thresher.experiment.run import Run
from thresher.report.frontier import FrontierPoint
from thresher.training.distillation import SoftLabels
from thresher.training.epochs import CHECKPOINT
from thresher.training.progress import Progress
from thresher.training.seeding import derive_seed


def train_dense(run: Run, table: EncodedTable, data: SplitBatches, progress: Progress | None = None) -> FrontierPoint:
    """The model with a plain table of the same width: what pruning is measured against, and the first to teach it."""
    config, done = run.config, run.dense / "point.json"
    labels = run.teacher_labels(1) if config.largest_share else None
    has_spoken = labels is None or labels.exists() or run.soft_labels.exists()
    if not done.exists() or not has_spoken:
        trained = _train_plain(run, config, table, data, run.dense, stage="dense", labels=labels, progress=progress)
        finish(run.dense, point_of(trained, label="dense", budget=None, seed=config.seed))
        del trained  # its table is as large as that of the next teacher
    if config.largest_share and not run.soft_labels.exists():
        _train_other_teachers(run, table, progress)
    return FrontierPoint.from_json(read_json(done))


def _train_other_teachers(run: Run, table: EncodedTable, progress: Progress | None) -> None:
    """Each of a seed of its own and never tested; then the mean of what all say, the dense model, too."""
    teachers = dict(enumerate(run.config.all_teachers(), 1))
    for number in range(2, len(teachers) + 1):
        labels = run.teacher_labels(number)
        if not labels.exists():
            own = derive_seed(run.config.seed, "teacher", number)
            config = replace(run.config, model=teachers[number], seed=own)
            untested, stage = (
                replace(shuffled_batches(config, table), test=None),
                f"teacher {number} of {len(teachers)}",
            )
            _train_plain(run, config, table, untested, labels.parent, stage=stage, labels=labels, progress=progress)
        (labels.parent / CHECKPOINT).unlink(missing_ok=True)
    soft_label_parts = [SoftLabels.load(run.teacher_labels(number), run.config.largest_share) for number in teachers]
    SoftLabels.mean(soft_label_parts).save(run.soft_labels)


def _train_plain(
    run: Run,
    config: RunConfig,
    table: EncodedTable,
    data: SplitBatches,
    folder: Path,
    *,
    stage: str,
    labels: Path | None,
    progress: Progress | None,
) -> Trained:
    """Train a model with a plain table and, where it may teach, write what it predicts for the training rows."""
    with run.large_tables():
        model = new_model(config, table, UniformConfig(embedding_dim=config.embedding.embedding_dim))
        trained = train_model(
            model, data, config.training, seed=config.seed, folder=folder, stage=stage, progress=progress
        )
        if labels is not None:
            share = config.largest_share
            SoftLabels.from_teacher(model, data.train, share, stage=f"{stage} predicts", progress=progress).save(labels)
    return trained
