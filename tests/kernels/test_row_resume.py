"""A search with row updates, killed and taken up again, ends the same."""

from dataclasses import replace

import pytest
import torch

from thresher.data.batches.split_batches import SplitBatches
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.models.fm import Fm, FmConfig
from thresher.search.config import SearchConfig
from thresher.search.find_tickets import find_tickets
from thresher.training.optimizers import OptimizerConfig


class Killed(Exception):
    """The process that searched is gone."""


class KilledIn:
    def __init__(self, source, epoch):
        self.source, self.num_rows, self.last_epoch = source, source.num_rows, epoch

    def __len__(self):
        return len(self.source)

    def epoch(self, epoch, start=0):
        for at, batch in enumerate(self.source.epoch(epoch, start)):
            if epoch == self.last_epoch and at == 3:
                raise Killed
            yield batch


def test_a_search_by_rows_killed_in_an_epoch_ends_the_same(tmp_path):
    rows = SyntheticConfig(num_rows=6_000, num_signal_fields=3, num_noise_fields=3, field_size=40, seed=3)
    table = encode(build_source(DataConfig(source="synthetic", synthetic=rows)), tmp_path / "encoded")
    data = SplitBatches.of(table, 256, seed=0)
    config = SearchConfig(
        warmup_epochs=1, plan_epochs=3, clock_steps=5, optimizer=OptimizerConfig(learning_rate=2e-2, updates="rows")
    )

    def search(data, folder):
        torch.manual_seed(0)
        model = Fm(PepEmbedding(table.schema.field_sizes, PepConfig(embedding_dim=8)), FmConfig())
        return find_tickets(model, data, ["20%", "3%"], config, seed=1, folder=folder)

    whole = search(data, tmp_path / "whole")
    with pytest.raises(Killed):
        search(replace(data, train=KilledIn(data.train, 3)), tmp_path / "killed")
    resumed = search(data, tmp_path / "killed")
    assert len(whole) == len(resumed) == 2
    for a, b in zip(whole, resumed, strict=True):
        for name, mask in a.masks.items():
            assert torch.equal(mask, b.masks[name])
            assert torch.equal(a.final.values[name], b.final.values[name])
