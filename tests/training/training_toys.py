"""A small model with dropout and an in-memory batch source; run as a program it fits them, to be killed."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from thresher.data.batches.split_batches import SplitBatches
from thresher.training.checkpoint import isolated_rng, seed_all
from thresher.training.fit import FitResult, TrainingConfig, fit
from thresher.training.optimizers import OptimizerConfig

FIELD_SIZES = (5, 40, 7)
NUM_FEATURES = sum(FIELD_SIZES)


@dataclass(frozen=True)
class ToyBatch:
    inputs: tuple[Any, ...]
    labels: Tensor
    weights: Tensor | None = None

    def to(self, device: torch.device) -> "ToyBatch":
        return self


@dataclass
class ToySource:
    """All in memory; the order is a pure function of (seed, epoch)."""

    ids: Tensor
    labels: Tensor
    batch_size: int = 32
    seed: int | None = None
    weights: Tensor | None = None
    on_batch: Callable[[int, int], None] = field(default=lambda epoch, batch: None)

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    def __len__(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[ToyBatch]:
        order = np.arange(self.num_rows)
        if self.seed is not None:
            order = np.random.default_rng([self.seed, epoch]).permutation(self.num_rows)
        for batch in range(start, len(self)):
            self.on_batch(epoch, batch)
            rows = torch.from_numpy(order[batch * self.batch_size : (batch + 1) * self.batch_size])
            weights = None if self.weights is None else self.weights[rows]
            yield ToyBatch((self.ids[rows],), self.labels[rows], weights)


class ToyModel(nn.Module):
    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        self.table = nn.Embedding(NUM_FEATURES, 4)
        self.hidden = nn.Linear(len(FIELD_SIZES) * 4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(8, 1)

    def forward(self, ids: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.hidden(self.table(ids).flatten(1))))
        return self.out(self.dropout(hidden)).squeeze(1)


def toy_rows(num_rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Ids `[rows, F]` and labels that depend on them."""
    rng = np.random.default_rng(seed)
    offsets = np.cumsum((0, *FIELD_SIZES[:-1]))
    ids = np.stack([rng.integers(0, size, num_rows) for size in FIELD_SIZES], axis=1) + offsets
    effects = np.random.default_rng(99).normal(size=NUM_FEATURES)
    labels = rng.random(num_rows) < 1 / (1 + np.exp(-1.5 * effects[ids].sum(axis=1)))
    return torch.from_numpy(ids.astype(np.int32)), torch.from_numpy(labels.astype(np.float32))


def toy_sources() -> tuple[ToySource, ToySource]:
    return ToySource(*toy_rows(640, 1), seed=7), ToySource(*toy_rows(200, 2), batch_size=64)


def toy_model(dropout: float = 0.3, seed: int = 0) -> ToyModel:
    with isolated_rng():
        seed_all(seed)
        return ToyModel(dropout)


TOY_CONFIG = TrainingConfig(max_epochs=9, patience=2, optimizer=OptimizerConfig(learning_rate=0.05))


def fit_toy(
    folder: Path | None, train: ToySource | None = None, model: ToyModel | None = None
) -> tuple[ToyModel, FitResult]:
    model, (default_train, validation) = model or toy_model(), toy_sources()
    data = SplitBatches(
        train=default_train if train is None else train,
        validation=validation,
        feature_counts=np.bincount(default_train.ids.flatten().numpy(), minlength=NUM_FEATURES),
    )
    result = fit(model, data, TOY_CONFIG, seed=3, folder=folder)
    return model, result


if __name__ == "__main__":
    torch.set_num_threads(1)
    target, slow_from = Path(sys.argv[1]), int(sys.argv[2])

    def announce(epoch: int, batch: int) -> None:
        """From the given batch on, say so and wait, so that the kill comes in the middle of an epoch."""
        if (epoch - 1) * 20 + batch >= slow_from:
            import time

            (target / "reached").touch()
            time.sleep(0.05)

    source, _ = toy_sources()
    source.on_batch = announce
    fitted, _ = fit_toy(target, source)
    save_file(fitted.state_dict(), target / "final.safetensors")
