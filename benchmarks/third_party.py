"""Third-party models from PyPI, attached, searched, retrained at 5 % of their embedding parameters and compacted.

    THRESHER_DATA_DIR=… python benchmarks/third_party.py [--models deepctr-deepfm,…] [--seeds 0,1,2]

Trains on MovieLens-1M and writes benchmarks/results/third_party.json. Finished models and seeds are skipped,
interrupted ones are resumed. The models' code is not changed: an adapter converts the batches and turns probabilities
into logits. `--rows 2000 --plan-epochs 1 --max-epochs 1 --out /tmp/tiny.json` tests the script on a few rows."""

import argparse
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor, nn

from thresher._internal.storage.files import read_json, write_json
from thresher.data.batches.batches import TensorBatches
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.config import DataConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.data.table import EncodedTable
from thresher.experiment.prune_model import prune_model
from thresher.experiment.retrain import TrainedModel
from thresher.search.schedule import SearchConfig
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

HERE = Path(__file__).parent
EMBEDDING_DIM, HIDDEN_SIZES, BUDGET = 64, (100, 100), "5%"
PLAN_EPOCHS, PATIENCE, MIN_DELTA = 10.0, 2, 0.0001  # shorter than the defaults, because there are seven slow models
TEACHER_SHARE = 1.0  # retraining uses only soft labels of the model's dense version


class Logits(nn.Module):
    """Converts global ids `[B, F]` to the model's input and its probability to a logit `[B]`."""

    def __init__(self, model: nn.Module, field_sizes: tuple[int, ...], inputs: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs
        offsets = torch.tensor([sum(field_sizes[:field]) for field in range(len(field_sizes))])
        self.register_buffer("offsets", offsets, persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.logit(self.model(self.inputs(ids - self.offsets)).flatten(), eps=1e-6)


def deepctr(name: str, field_sizes: tuple[int, ...]) -> Logits:
    from deepctr_torch import models
    from deepctr_torch.inputs import SparseFeat

    columns = [SparseFeat(f"field_{k}", size, embedding_dim=EMBEDDING_DIM) for k, size in enumerate(field_sizes)]
    options = {"dnn_hidden_units": HIDDEN_SIZES, "dnn_dropout": 0.2, "device": "cpu"}
    options |= {"cin_layer_size": (32,)} if name == "xDeepFM" else {}
    model = getattr(models, name)(columns, columns, **options)
    return Logits(model, field_sizes, lambda local: local.float())


def rechub(name: str, field_sizes: tuple[int, ...]) -> Logits:
    from torch_rechub.basic.features import SparseFeature
    from torch_rechub.models import ranking

    features = [SparseFeature(f"field_{k}", size, embed_dim=EMBEDDING_DIM) for k, size in enumerate(field_sizes)]
    mlp_params = {"dims": list(HIDDEN_SIZES), "dropout": 0.2}
    inputs = {"DCN": (features, 3, mlp_params)}.get(name, (features, features, mlp_params))
    return Logits(
        getattr(ranking, name)(*inputs),
        field_sizes,
        lambda local: {feature.name: local[:, k] for k, feature in enumerate(features)},
    )


def torchfm_autoint(field_sizes: tuple[int, ...]) -> Logits:
    from torchfm.model.afi import AutomaticFeatureInteractionModel

    model = AutomaticFeatureInteractionModel(
        field_sizes, EMBEDDING_DIM, 64, num_heads=2, num_layers=1, mlp_dims=HIDDEN_SIZES, dropouts=(0.4, 0.2)
    )
    return Logits(model, field_sizes, lambda local: local)


MODELS: dict[str, Callable[[tuple[int, ...]], Logits]] = {
    **{
        f"deepctr-{name.lower()}": lambda sizes, name=name: deepctr(name, sizes)
        for name in ("DeepFM", "xDeepFM", "DCN")
    },
    **{
        f"rechub-{name.lower()}": lambda sizes, name=name: rechub(name, sizes) for name in ("DeepFM", "DCN", "WideDeep")
    },
    "torchfm-afi": torchfm_autoint,
}


def splits(table: EncodedTable, batch_size: int, seed: int, rows: int | None) -> SplitBatches:
    def batches(name: str, size: int, shuffle: int | None) -> TensorBatches:
        split = table.split(name)
        ids, labels = torch.tensor(split.ids[:rows]).long(), torch.tensor(split.labels[:rows])
        return TensorBatches((ids,), labels, size, seed=shuffle)

    return SplitBatches(
        train=batches("train", batch_size, seed), validation=batches("validation", 8192, None),
        test=batches("test", 8192, None),
    )  # fmt: skip


def result_of(trained: TrainedModel) -> dict[str, object]:
    assert trained.test is not None
    return {
        "num_parameters": trained.num_parameters,
        "storage_bytes": trained.storage_bytes,
        "validation_auc": trained.fit.validation.auc,
        "test_auc": trained.test.auc,
        "test_logloss": trained.test.logloss,
        "best_epoch": trained.fit.best_epoch,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--rows", type=int, help="rows of each split; default: all")
    parser.add_argument("--plan-epochs", type=float, default=PLAN_EPOCHS)
    parser.add_argument("--max-epochs", type=int, default=TrainingConfig().max_epochs)
    parser.add_argument("--learning-rate", type=float, default=OptimizerConfig().learning_rate, help="after the search")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "third_party.json")
    arguments = parser.parse_args()

    data = DataConfig(source="movielens-1m", data_dir=str(Path(os.environ["THRESHER_DATA_DIR"]) / "ml-1m"))
    whole = arguments.rows is None
    work = HERE / "temporary" / "third_party" if whole else Path(tempfile.mkdtemp())
    table = encode(build_source(data), work / "encoded")
    search = SearchConfig(plan_epochs=arguments.plan_epochs)
    search = search if whole else replace(search, warmup_epochs=1.0, clock_steps=1)
    optimizer = OptimizerConfig(learning_rate=arguments.learning_rate)
    training = TrainingConfig(
        max_epochs=arguments.max_epochs, patience=PATIENCE, min_delta=MIN_DELTA, optimizer=optimizer
    )
    results = read_json(arguments.out) if arguments.out.exists() else {"models": {}}
    versions = {name: version(name) for name in ("torch", "deepctr-torch", "torch-rechub", "torchfm")}
    settings = {
        "embedding_dim": EMBEDDING_DIM, "budget": BUDGET, "plan_epochs": arguments.plan_epochs, "patience": PATIENCE,
        "min_delta": MIN_DELTA, "teacher_share": TEACHER_SHARE, "machine": platform.processor(), **versions,
    }  # fmt: skip
    if arguments.max_epochs != TrainingConfig().max_epochs:
        settings["max_epochs"] = arguments.max_epochs
    if optimizer != OptimizerConfig():
        settings["learning_rate"] = arguments.learning_rate
    for name in arguments.models.split(","):
        for seed in map(int, arguments.seeds.split(",")):
            found = results["models"].setdefault(name, {})
            if found.get(str(seed), {}).get("settings") == settings:
                continue
            torch.manual_seed(seed)
            model, started = MODELS[name](table.schema.field_sizes), perf_counter()
            batches = splits(table, training.batch_size, seed, arguments.rows)
            folder = work / name / str(seed)
            pruned = prune_model(
                model, batches, BUDGET, search=search, training=training, teacher_share=TEACHER_SHARE,
                distill_search=False,
                seed=seed, folder=folder,
            )  # fmt: skip
            measured = {"dense": result_of(pruned.dense), BUDGET: result_of(pruned.pruned[BUDGET])}
            gain = measured[BUDGET]["test_auc"] - measured["dense"]["test_auc"]
            seconds = round(perf_counter() - started)
            found[str(seed)] = measured | {"test_auc_gain": gain, "seconds": seconds, "settings": settings}
            write_json(arguments.out, results)
            print(f"{name} seed {seed}: dense {measured['dense']['test_auc']:.4f}, {BUDGET} {gain:+.4f}", flush=True)


if __name__ == "__main__":
    main()
