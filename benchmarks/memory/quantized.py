"""Cost of quantization: AUC and bytes of a run's bundles in every value type, with and without retraining.

    python benchmarks/memory/quantized.py RUN [--budgets 25k 6500] [--epochs 5]

RUN is the folder of a finished `thresher prune`. Each bundle is converted to fp16, bf16, int8 and int4; int8 and int4
are also retrained for a few quantization-aware epochs. Choices are made on validation; the test split is read once for
each reported model."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from torch import nn

from thresher.compact.method_table import make_trainable_
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.table import EncodedTable
from thresher.experiment.retrain import retrain_quantized
from thresher.experiment.run.run_folder import Run
from thresher.models.model_registry import model_name
from thresher.serving.bundle import open_bundle
from thresher.serving.change_bundle import convert_bundle
from thresher.training.epoch import evaluate
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

sys.path.insert(0, str(Path(__file__).parent.parent / "speed"))
from measure import print_table, result_path, write_result


def evaluated(model: nn.Module, data: SplitBatches, storage_bytes: int) -> dict[str, float]:
    assert data.test is not None
    validation, test = (evaluate(model, split) for split in (data.validation, data.test))
    return {"storage_bytes": storage_bytes, "validation_auc": validation.auc, "test_auc": test.auc,
            "test_logloss": test.logloss}  # fmt: skip


def measure(folder: Path, data: SplitBatches, config: TrainingConfig, seed: int) -> dict[str, dict[str, float]]:
    fp32 = open_bundle(folder)
    figures = {"fp32": evaluated(fp32.model, data, fp32.tables["embedding"].storage_bytes)}
    with tempfile.TemporaryDirectory() as name:
        for value_type in ("fp16", "bf16", "int8", "int4"):
            bundle = open_bundle(convert_bundle(folder, Path(name) / value_type, value_type))  # type: ignore[arg-type]
            figures[value_type] = evaluated(bundle.model, data, bundle.tables["embedding"].storage_bytes)
    for value_type in ("int8", "int4"):
        model = open_bundle(folder).model
        make_trainable_(model)
        trained = retrain_quantized(model, data, value_type, config, seed=seed)  # type: ignore[arg-type]
        assert trained.test is not None
        figures[f"{value_type}, retrained"] = {
            "storage_bytes": model.embedding.storage_bytes(),  # type: ignore[union-attr, operator]
            "validation_auc": trained.fit.validation.auc,
            "test_auc": trained.test.auc,
            "test_logloss": trained.test.logloss,
            "best_epoch": trained.fit.best_epoch,
        }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--budgets", nargs="+", help="budgets of the bundles; default: all")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--quick", action="store_true", help="one epoch of the smallest budget only")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = result_path("quantized", arguments.out, quick=arguments.quick)
    run = Run.open(arguments.run)
    training = run.config.training
    data = SplitBatches.of(EncodedTable.open(run.encoded), training.batch_size, seed=run.config.seed)
    budgets: list[Any] = arguments.budgets or [str(budget) for budget in run.config.wanted_budgets()]
    if arguments.quick:
        budgets = budgets[-1:]
    config = TrainingConfig(
        max_epochs=1 if arguments.quick else arguments.epochs,
        batch_size=training.batch_size,
        optimizer=OptimizerConfig(learning_rate=arguments.learning_rate),
    )
    figures: dict[str, dict[str, float]] = {}
    ratios: dict[str, float] = {}
    for budget in budgets:
        measured = measure(run.bundle(budget), data, config, run.config.seed)
        figures |= {f"{budget}, {name}": variant for name, variant in measured.items()}
        for name, variant in measured.items():
            key = name.replace(", ", "_")
            ratios[f"auc_lost_{budget}_{key}"] = measured["fp32"]["test_auc"] - variant["test_auc"]
    print_table(figures)
    run_settings = {"source": run.config.data.source, "model": model_name(run.config.model), "seed": run.config.seed}
    settings = {**run_settings, "epochs": config.max_epochs, "learning_rate": arguments.learning_rate}
    ratios = {name: round(ratio, 6) for name, ratio in ratios.items()}
    write_result("quantized", settings, figures, ratios, out)


if __name__ == "__main__":
    main()
