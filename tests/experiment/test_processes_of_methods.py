"""Two processes find what one finds: by other methods than PEP, and for a model in memory (`prune_model`)."""

import pytest
import torch
from torch import nn

from processes import run_in_processes
from thresher._internal.storage.files import read_json
from thresher.baselines.hashing import HashConfig
from thresher.baselines.l1_projection import L1ProjectionConfig
from thresher.baselines.magnitude import GradualMagnitudeConfig, IterativeMagnitudeConfig, MagnitudeConfig
from thresher.baselines.nis import NisConfig
from thresher.data.batches.batches import TensorBatches
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.errors import ConfigError
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import prune
from thresher.experiment.prune_model import prune_model
from thresher.models.fm import FmConfig
from thresher.search.schedule import SearchConfig
from thresher.search.ticket_files import load_ticket
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

FAST = OptimizerConfig(learning_rate=1e-2)
RARE = SyntheticConfig(num_rows=3_000, field_size=400)  # values that a single process sees
METHODS = {
    "hash": HashConfig(embedding_dim=4),
    "magnitude": MagnitudeConfig(embedding_dim=4),
    "gradual": GradualMagnitudeConfig(embedding_dim=4),
    "iterative": IterativeMagnitudeConfig(embedding_dim=4, round_epochs=1),
    "projection": L1ProjectionConfig(embedding_dim=4),
}


def config_of(embedding):
    return RunConfig(
        data=DataConfig(source="synthetic", synthetic=RARE),
        model=FmConfig(),
        embedding=embedding,
        search=SearchConfig(optimizer=FAST, warmup_epochs=0, plan_epochs=1, max_epochs=1, start="initial"),
        training=TrainingConfig(batch_size=250, max_epochs=1, optimizer=FAST),
        budgets=("20%",),
        effort="fast",
        teacher_share=0.0,
    )


class Clicks(nn.Module):
    """A user's model; its first-order weights have sparse gradients that PyTorch does not add up."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.users, self.items = nn.Embedding(60, 8, _weight=torch.randn(60, 8) * 0.1), nn.Embedding(20, 8)
        self.bias = nn.Embedding(20, 1, sparse=True)

    def forward(self, users, items):
        return (self.users(users) * self.items(items)).sum(1) + self.bias(items).squeeze(1)


def clicks():
    draw = torch.Generator().manual_seed(0)
    users, items = torch.randint(60, (1_000,), generator=draw), torch.randint(20, (1_000,), generator=draw)
    rows = TensorBatches((users, items), (users % 2 == items % 2).float(), 100, seed=0)
    return SplitBatches(train=rows, validation=rows.in_order(200), test=rows.in_order(200))


def prune_clicks(folder=None):
    training = TrainingConfig(max_epochs=3, optimizer=OptimizerConfig(learning_rate=2e-2, updates="rows"))
    search = SearchConfig(optimizer=training.optimizer, plan_epochs=2)
    found = prune_model(Clicks(), clicks(), "20%", search=search, training=training, folder=folder)
    return found.frontier.points[0]


def run_all(rank, folder):
    point = prune_clicks(folder / "model")
    for name, embedding in METHODS.items():
        prune(config_of(embedding), out=folder / name)
    with pytest.raises(ConfigError, match="'controller' runs in one process only"):
        prune(config_of(NisConfig(embedding_dim=8)), out=folder / "nis")
    return point


@pytest.mark.slow
def test_two_processes_find_what_one_finds_by_other_methods(tmp_path):
    points = run_in_processes(run_all, tmp_path / "two")
    in_memory = prune_clicks()
    for point in points:
        assert point.num_parameters == in_memory.num_parameters
        assert point.test_auc == pytest.approx(in_memory.test_auc, abs=1e-4)
    for name, embedding in METHODS.items():
        one = prune(config_of(embedding), out=tmp_path / "one" / name).frontier.points[0]
        two = read_json(tmp_path / "two" / name / "results.json")["points"][0]
        assert two["num_parameters"] == one.num_parameters, name
        assert two["test_auc"] == pytest.approx(one.test_auc, abs=1e-4), name
        [path] = (tmp_path / "one" / name).glob("tickets/**/ticket.json")
        folders = (path.parent, tmp_path / "two" / path.parent.relative_to(tmp_path / "one"))
        ticket, other = map(load_ticket, folders)
        masks = getattr(ticket, "masks", {})
        num_equal = sum(int((mask & other.masks[table]).sum()) for table, mask in masks.items())
        assert not masks or num_equal >= 0.999 * ticket.num_parameters, name
