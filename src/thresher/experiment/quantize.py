"""quantize_bundle(): a bundle of a run → the same with fp16, int8 or int4 values, measured again on the run's data."""

import logging
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from thresher.compact.layouts import ValueType
from thresher.compact.method_table import make_trainable_
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.table import EncodedTable
from thresher.experiment.retrain import retrain_quantized, short_training
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_models import shuffled_batches
from thresher.report.frontier import FrontierPoint
from thresher.serving.bundle import Bundle, open_bundle, save_bundle
from thresher.serving.change_bundle import check_can_round
from thresher.training.distillation import SoftLabels
from thresher.training.epoch import evaluate
from thresher.training.progress import Progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class QuantizedBundle:
    """A quantized bundle, its point on the frontier, and the validation AUC before quantization."""

    bundle: Bundle
    point: FrontierPoint
    validation_auc_before: float


def quantize_bundle(
    run: Run,
    source: Path,
    folder: Path,
    value_type: ValueType,
    *,
    retrain: bool = False,
    progress: Progress | None = None,
) -> QuantizedBundle:
    """Write a bundle of a run again with quantized values, and measure it again on validation and test.

    Args:
        source: the bundle, e.g. `run.bundle("2%")`.
        folder: where the quantized bundle is written.
        retrain: quantization-aware training for a few epochs (int8 and int4).
    """
    bundle = open_bundle(source)
    check_can_round(bundle, value_type)
    data = shuffled_batches(run.config, EncodedTable.open(run.encoded))
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
    stored = {"value_type": value_type, "quantization_aware": retrain, "data": bundle.metadata.get("data")}
    write(model=rounded.model, metadata={**point.to_json(), **stored})
    return QuantizedBundle(rounded, point, before.auc)


def _retrain(run: Run, bundle: Bundle, data: SplitBatches, value_type: ValueType, progress: Progress | None) -> None:
    make_trainable_(bundle.model)
    retrain_quantized(
        bundle.model,
        replace(data, test=None),  # the test split is read once, for the bundle that is written
        value_type,
        short_training(run.config.training),
        seed=run.config.seed,
        soft_labels=_soft_labels(run),
        progress=progress,
    )


def _soft_labels(run: Run) -> SoftLabels | None:
    """The soft labels that the run's tickets were retrained on; None for hard labels."""
    plan = run.distillation()
    if plan is None or not plan.retraining:
        return None
    if not run.soft_labels.exists():
        logger.warning("The soft labels of this run are missing (%s). Training uses hard labels.", run.soft_labels)
        return None
    return run.load_soft_labels(plan.retraining)


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
