"""Two processes find what one finds: by other methods than PEP, and for a model in memory (`prune_model`)."""

import pytest
import torch
from torch import nn

from processes import run_in_processes
from thresher._internal.processes import Processes, training_together
from thresher.baselines.hashing import HashConfig
from thresher.baselines.l1_projection import L1ProjectionConfig
from thresher.baselines.magnitude import GradualMagnitudeConfig, IterativeMagnitudeConfig, MagnitudeConfig
from thresher.baselines.mgqe import MgqeConfig
from thresher.baselines.nis import NisConfig
from thresher.data.batches.batches import TensorBatches
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.method_registry import build_embedding
from thresher.errors import ConfigError
from thresher.experiment.prune_model import prune_model
from thresher.experiment.retrain import retrain_ticket
from thresher.models.fm import FmConfig
from thresher.models.model_registry import build_model
from thresher.search.find_tickets import find_tickets
from thresher.search.schedule import SearchConfig
from thresher.training.checkpoint import Checkpoint
from thresher.training.fit import TrainingConfig, fit
from thresher.training.optimizers import OptimizerConfig
from thresher.training.run_state import CHECKPOINT

FIELDS, NUM_ROWS = [200, 100], 600  # many values are seen by one process only
FAST = OptimizerConfig(learning_rate=2e-2)
SEARCH = SearchConfig(optimizer=FAST, warmup_epochs=0, plan_epochs=1, max_epochs=1, clock_steps=2, start="initial")
METHODS = {
    "hash": HashConfig(embedding_dim=4),
    "mgqe": MgqeConfig(embedding_dim=4, num_subspaces=2, num_centroids=8, num_rare_centroids=4),
    "magnitude": MagnitudeConfig(embedding_dim=4),
    "gradual": GradualMagnitudeConfig(embedding_dim=4),
    "iterative": IterativeMagnitudeConfig(embedding_dim=4, round_epochs=1),
    "projection": L1ProjectionConfig(embedding_dim=4),
}


class Clicks(nn.Module):
    """A user's model; its first-order weights have sparse gradients that PyTorch does not add up."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.users, self.items = nn.Embedding(200, 4), nn.Embedding(100, 4)
        self.bias = nn.Embedding(100, 1, sparse=True)

    def forward(self, users, items):
        return (self.users(users) * self.items(items)).sum(1) + self.bias(items).squeeze(1)


def clicks():
    draw = torch.Generator().manual_seed(0)
    users, items = (torch.randint(size, (NUM_ROWS,), generator=draw) for size in FIELDS)
    return users, items, (users % 2 == items % 2).float()


def in_splits(inputs, labels, counts=None):
    rows = TensorBatches(inputs, labels, 100, seed=0)
    return SplitBatches(train=rows, validation=rows.in_order(200), test=rows.in_order(200), feature_counts=counts)


def prune_clicks(folder=None):
    *inputs, labels = clicks()
    by_rows = OptimizerConfig(learning_rate=2e-2, updates="rows")
    search, training = SearchConfig(optimizer=by_rows, plan_epochs=1), TrainingConfig(max_epochs=1, optimizer=by_rows)
    found = prune_model(
        Clicks(), in_splits(inputs, labels), "20%",
        search=search, training=training, teacher_share=0.0, folder=folder,
    )  # fmt: skip
    return found.frontier.points[0]


def search_and_retrain(embedding):
    """Masks of the ticket (none for a method without a search), its size, and the validation AUC."""
    users, items, labels = clicks()
    ids = torch.stack([users, items + FIELDS[0]], dim=1).int()
    counts = torch.bincount(ids.flatten(), minlength=sum(FIELDS)).numpy()
    data = in_splits((ids,), labels, counts)

    def new_model(config):
        torch.manual_seed(0)
        return build_model(build_embedding(FIELDS, config, feature_counts=counts.tolist()), FmConfig())

    with training_together(Processes.of()):
        (ticket,) = find_tickets(new_model(embedding), data, "20%", SEARCH)
        training = TrainingConfig(max_epochs=1, optimizer=FAST)
        trained = retrain_ticket(ticket, new_model(ticket.embedding_config(embedding)), data, training)
    return getattr(ticket, "masks", {}), ticket.num_parameters, trained.fit.validation.auc


def kept_rows_seen(rank, folder):
    """The rows marked as seen in the best weights of a checkpoint."""
    users, items, labels = clicks()
    ids = torch.stack([users, items + FIELDS[0]], dim=1).int()
    torch.manual_seed(0)
    model = build_model(build_embedding(FIELDS, MagnitudeConfig(embedding_dim=4)), FmConfig())
    with training_together(Processes.of()):
        fit(model, in_splits((ids,), labels), TrainingConfig(max_epochs=1), seed=0, folder=folder)
    best = Checkpoint.load(folder / CHECKPOINT).part("controller").part("stopping")
    return best.tensors["embedding.seen"]


def test_the_best_weights_of_a_checkpoint_know_the_rows_that_any_process_has_seen(tmp_path):
    users, items, _ = clicks()
    expected = torch.bincount(torch.cat([users, items + FIELDS[0]]), minlength=sum(FIELDS)) > 0
    for found in run_in_processes(kept_rows_seen, tmp_path):
        assert torch.equal(found, expected)


def run_all(rank, folder):
    point = prune_clicks(folder)
    with pytest.raises(ConfigError, match="'controller' runs in one process only"):
        search_and_retrain(NisConfig(embedding_dim=8))
    return point, {name: search_and_retrain(embedding) for name, embedding in METHODS.items()}


@pytest.mark.slow
def test_two_processes_find_what_one_finds(tmp_path):
    in_memory = prune_clicks()
    expected = {name: search_and_retrain(embedding) for name, embedding in METHODS.items()}
    for point, found in run_in_processes(run_all, tmp_path / "model"):
        assert point.num_parameters == in_memory.num_parameters
        assert point.test_auc == pytest.approx(in_memory.test_auc, abs=1e-4)
        for name, (masks, num_parameters, auc) in expected.items():
            other_masks, other_number, other_auc = found[name]
            assert other_number == num_parameters, name
            error = 0.02 if name == "mgqe" else 1e-3  # its loss has a mean over the distinct features of a part
            assert other_auc == pytest.approx(auc, abs=error), name
            num_equal = sum(int((mask & other_masks[table]).sum()) for table, mask in masks.items())
            assert not masks or num_equal >= 0.99 * num_parameters, name
