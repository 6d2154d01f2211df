"""A search in miniature: four fields of signal, four of noise, an FM, and what it takes to kill it half-way."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import nn

from thresher.data.batches.split_batches import SplitBatches
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.embeddings.method_registry import build_embedding
from thresher.models.fm import FmConfig
from thresher.models.model_registry import build_model
from thresher.search.budget import parse_budgets
from thresher.search.find_tickets import SearchTask, find_tickets
from thresher.search.schedule import SearchConfig
from thresher.training.metrics import Metrics
from thresher.training.optimizers import OptimizerConfig

SEARCH = SearchConfig(
    warmup_epochs=2, plan_epochs=3, max_epochs=5, max_warmup_epochs=3, clock_steps=5,
    optimizer=OptimizerConfig(learning_rate=2e-2, choice_learning_rate=2e-2),
)  # fmt: skip


class Killed(Exception):
    """The process that searched is gone."""


@dataclass
class KilledAt:
    """Training batches up to the middle of an epoch, and then no more."""

    source: object
    epoch_of_death: int

    @property
    def num_rows(self):
        return self.source.num_rows

    def __len__(self):
        return len(self.source)

    def epoch(self, epoch, start=0):
        for at, batch in enumerate(self.source.epoch(epoch, start)):
            if epoch == self.epoch_of_death and at == 3:
                raise Killed
            yield batch


class Planted:
    """Searches on rows whose signal and noise fields are known."""

    def __init__(self, folder: Path) -> None:
        rows = SyntheticConfig(num_rows=16_000, num_signal_fields=4, num_noise_fields=4, field_size=30, seed=3)
        source = build_source(DataConfig(source="synthetic", synthetic=rows))
        self.table = encode(source, folder)
        self.data = SplitBatches.of(self.table, 256, seed=0)
        self.num_features = self.table.schema.num_features
        self.is_signal = torch.tensor([name in source.signal_fields for name in self.table.schema.field_names])

    def model(self, embedding, seed=0, model=FmConfig()):  # noqa: B008
        torch.manual_seed(seed)
        counts = self.table.feature_counts.tolist()
        return build_model(build_embedding(self.table.schema.field_sizes, embedding, feature_counts=counts), model)

    def search(self, embedding, budgets, *, folder=None, config=SEARCH, killed_in=None, soft_labels=None):
        data = self.data
        if killed_in is not None:
            data = replace(data, train=KilledAt(data.train, killed_in))
        return find_tickets(
            self.model(embedding), data, budgets, config, seed=1, folder=folder, soft_labels=soft_labels
        )

    def kept_by_kind(self, sizes):
        """Sizes `[N]` → (entries of signal fields, entries of noise fields)."""
        kept = torch.stack([part.sum() for part in sizes.split(list(self.table.schema.field_sizes))])
        return int(kept[self.is_signal].sum()), int(kept[~self.is_signal].sum())


class Untrained:
    """A search task for tests that play the training: a table of 10 rows, all seen, and epochs of ten steps."""

    def __init__(self, embedding, *, budgets="8", num_rows=10, **settings):
        torch.manual_seed(0)
        self.table = build_embedding((num_rows,), embedding)
        self.table.seen.fill_(True)
        self.tables = {"table": self.table}
        self.task = SearchTask(
            model=nn.ModuleDict(self.tables),
            data=SplitBatches(train=range(10), validation=None),
            budgets=parse_budgets(budgets),
            config=replace(SearchConfig(warmup_epochs=1, plan_epochs=2, max_epochs=3, clock_steps=7), **settings),
            seed=0,
        )


@pytest.fixture
def untrained():
    return Untrained


@pytest.fixture
def metrics():
    """Of a validation split, by their AUC."""
    return lambda auc: Metrics(auc=auc, logloss=0.5, mean_prediction=0.5, mean_label=0.5, rare_auc=None, num_rows=1)


@pytest.fixture(scope="session")
def planted(tmp_path_factory):
    return Planted(tmp_path_factory.mktemp("planted") / "encoded")


@pytest.fixture
def killed_and_resumed(planted, tmp_path):
    """A search killed in the middle of an epoch and resumed from its folder."""

    def search(embedding, budgets, *, killed_in, config=SEARCH):
        with pytest.raises(Killed):
            planted.search(embedding, budgets, folder=tmp_path, config=config, killed_in=killed_in)
        assert (tmp_path / "checkpoint.safetensors").exists()
        return planted.search(embedding, budgets, folder=tmp_path, config=config)

    return search
