"""Search and retraining on the stand-in device against the CPU: models × granularities, and every other method."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

import stand_in_device
from thresher import (
    AutoIntConfig,
    DeepFmConfig,
    FmConfig,
    OptimizerConfig,
    PepConfig,
    SearchConfig,
    SplitBatches,
    TensorBatches,
    TrainingConfig,
    build_embedding,
    build_model,
    find_tickets,
    retrain_ticket,
)
from thresher.embeddings.method_registry import registered_embeddings
from thresher.training.checkpoint import seed_all
from thresher.training.epoch import train_epoch
from thresher.training.optimizers import build_optimizer

FIELDS, NUM_ROWS, BATCH = [20] * 4, 600, 100
FAST = OptimizerConfig(learning_rate=2e-2)
MODELS = {
    "fm": FmConfig(),
    "deepfm": DeepFmConfig(hidden_sizes=(8,), dropout=0.0),
    "autoint": AutoIntConfig(dropout=0.0),
}
CASES = [("fm", PepConfig(embedding_dim=4, granularity=name)) for name in ("global", "dimension", "feature", "field")]
CASES += [(model, PepConfig(embedding_dim=4)) for model in MODELS]
CENTROIDS = {"num_centroids": 8, "num_rare_centroids": 4}
CASES += [
    ("deepfm", replace(method.config(), embedding_dim=8, **(CENTROIDS if name == "mgqe" else {})))
    for name, method in registered_embeddings().items()
    if name != "pep"
]


def data():
    draw = torch.Generator().manual_seed(0)
    ids = torch.stack([torch.randint(20, (NUM_ROWS,), generator=draw) + 20 * field for field in range(4)], 1).int()
    labels = (ids[:, 0] % 3 == ids[:, 1] % 3).float()
    rows = TensorBatches((ids,), labels, BATCH, seed=0)
    counts = torch.bincount(ids.flatten(), minlength=sum(FIELDS))
    return SplitBatches(train=rows, validation=TensorBatches((ids,), labels, 200), feature_counts=counts.numpy())


def new_model(model, config, device):
    seed_all(1)
    counts = data().feature_counts.tolist()
    return build_model(build_embedding(FIELDS, config, feature_counts=counts), MODELS[model]).to(device)


def search_and_retrain(model, config, device):
    search = SearchConfig(optimizer=FAST, plan_epochs=2, warmup_epochs=1, max_epochs=2)
    budget = "20%" if isinstance(config, PepConfig) else "60%"  # sizes and shared rows reach no smaller one
    (ticket,) = find_tickets(new_model(model, config, device), data(), [budget], search)
    fresh = new_model(model, ticket.embedding_config(config), device)
    trained = retrain_ticket(ticket, fresh, data(), TrainingConfig(max_epochs=2, optimizer=FAST))
    return ticket, trained.fit.validation.auc


def waits_of_an_epoch(model, config):
    """How often an epoch of training waits for the device, beside reading its loss."""
    built = new_model(model, config, "standin")
    optimizer = build_optimizer(built, FAST)
    train_epoch(built, data().train, optimizer, 1)
    stand_in_device.WAITS.clear()
    stand_in_device.COPIES.clear()
    train_epoch(built, data().train, optimizer, 2)
    return sum(stand_in_device.WAITS.values()), stand_in_device.COPIES["to the device"]


def main():
    stand_in_device.install()
    for model, config in CASES:
        expected, expected_auc = search_and_retrain(model, config, "cpu")
        ticket, auc = search_and_retrain(model, config, "standin")
        where = f"{model}, {config}"
        for name, mask in getattr(expected, "masks", {}).items():
            assert torch.equal(ticket.masks[name].cpu(), mask), where
        assert getattr(ticket, "embedding", None) == getattr(expected, "embedding", None), where
        for name, table in getattr(expected, "tables", {}).items():
            assert ticket.tables[name].sizes == table.sizes, where
        assert abs(auc - expected_auc) < 0.002, (where, auc, expected_auc)
    num_steps = NUM_ROWS // BATCH
    for model in MODELS:
        waits, copies = waits_of_an_epoch(model, PepConfig(embedding_dim=4))
        assert waits <= 1, (model, waits)  # the losses of the epoch are read once, at its end
        assert copies == 2 * num_steps, (model, copies)  # ids and labels


main()
