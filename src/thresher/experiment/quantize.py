"""in_fewer_bits(): a bundle of a run → the same with values of 16, 8 or 4 bits, and what that costs on the run's data.

Not here: rounding where there is no data (`thresher.serving.bundle.convert_bundle`).
"""

import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from thresher.compact.layouts import ValueType
from thresher.compact.stored import make_trainable_
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.table import EncodedTable
from thresher.experiment.retrain import retrain_quantised, short_training
from thresher.experiment.run import Run
from thresher.experiment.stages import batches
from thresher.report.frontier import FrontierPoint
from thresher.serving.bundle import Bundle, check_can_round, open_bundle, save_bundle
from thresher.training.distillation import SoftLabels
from thresher.training.loop import evaluate
from thresher.training.progress import Progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rounded:
    """A bundle in fewer bits, its point on the frontier, and the validation AUC it had before."""

    bundle: Bundle
    point: FrontierPoint
    validation_auc_before: float


def in_fewer_bits(
    run: Run,
    source: Path,
    folder: Path,
    value_type: ValueType,
    *,
    retrain: bool = False,
    progress: Progress | None = None,
) -> Rounded:
    """Write one of a run's bundles again with rounded values, measured anew: none of its figures are the old ones.

    Args:
        source: the bundle, for instance `run.bundle("2%")`.
        folder: where the new one goes.
        retrain: go on training in these bits, 8 or 4, for a few epochs.
    """
    bundle = open_bundle(source)
    check_can_round(bundle, value_type)
    data = batches(run, EncodedTable.open(run.encoded))
    before = evaluate(bundle.model, data.validation)
    if retrain:
        _retrain(run, bundle, data, value_type, progress)
    write = partial(
        save_bundle, folder, model_config=bundle.model_config, encoder=bundle.encoder, searched=bundle.searched
    )
    write(model=bundle.model, value_type=value_type)
    rounded = open_bundle(folder)
    point = _measure(
        run, rounded, data, label=str(bundle.metadata.get("label", "")), budget=bundle.metadata.get("budget")
    )
    write(
        model=rounded.model, metadata={**point.to_json(), "value_type": value_type, "retrained_in_these_bits": retrain}
    )
    return Rounded(rounded, point, before.auc)


def _retrain(run: Run, bundle: Bundle, data: SplitBatches, value_type: ValueType, progress: Progress | None) -> None:
    make_trainable_(bundle.model)
    retrain_quantised(
        bundle.model,
        replace(data, test=None),  # the test split is read once, of what is written
        value_type,
        short_training(run.config.training),
        seed=run.config.seed,
        soft_labels=_lesson(run),
        progress=progress,
    )


def _lesson(run: Run) -> SoftLabels | None:
    """What the run's tickets were retrained on, where that was taught and can still be read."""
    teaching = run.teaching()
    if teaching is None or not teaching.retraining:
        return None
    if not run.soft_labels.exists():
        logger.warning(
            "The teachers' predictions this model learned from are gone (%s); it goes on with labels.", run.soft_labels
        )
        return None
    return run.load_soft_labels(teaching.retraining)


def _measure(run: Run, rounded: Bundle, data: SplitBatches, *, label: str, budget: str | None) -> FrontierPoint:
    assert data.test is not None
    validation, test = (
        evaluate(rounded.model, split, feature_counts=data.feature_counts) for split in (data.validation, data.test)
    )
    return FrontierPoint.from_metrics(
        label=label,
        budget=budget,
        num_parameters=rounded.num_parameters,
        storage_bytes=rounded.searched_bytes,
        validation=validation,
        test=test,
        seed=run.config.seed,
    )
