"""Retraining on the kept values takes the very steps of masked dense retraining."""

import torch
from torch import nn
from torch.nn import functional

from thresher.data.batches.batches import Batches
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.pep import PepConfig
from thresher.experiment.retrain import retrain_ticket
from thresher.models.fm import FmConfig
from thresher.models.model_registry import build_model
from thresher.search.budget import Budget
from thresher.search.mask_search import top_entries
from thresher.search.ticket import MaskTicket, Provenance, kept_weights
from thresher.training.epoch import train_epoch
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig, build_optimizer


def fm(table, seed):
    torch.manual_seed(seed)
    return build_model(build_embedding(table.schema.field_sizes, PepConfig(embedding_dim=8)), FmConfig())


class MaskedDense(nn.Module):
    """The reference: `V ⊙ mask` looked up, `V` trained by dense Adam."""

    def __init__(self, weight, mask):
        super().__init__()
        self.weight, self.mask = nn.Parameter(weight * mask), mask
        self.field_sizes, self.embedding_dim = (len(weight),), weight.shape[1]
        self.num_features = len(weight)

    def forward(self, ids):
        return functional.embedding(ids, self.weight * self.mask)

    def parameter_groups(self):
        return {"embeddings": [self.weight]}


def ticket_for(table, num_kept):
    start = fm(table, seed=1)
    masks = top_entries({"embedding": torch.randn_like(start.embedding.weight)}, num_kept)
    weights = kept_weights(start, masks)
    return start, MaskTicket(Budget.parse(num_kept), masks, weights, weights, Provenance("pep", 0, 0, 0))


def test_compact_retraining_takes_the_steps_of_masked_dense_adam(small_table):
    table = small_table
    start, ticket = ticket_for(table, 300)
    mask = ticket.masks["embedding"]
    dense = fm(table, seed=1)
    dense.embedding = MaskedDense(start.embedding.weight.detach(), mask)
    compact = fm(table, seed=2)
    ticket.apply_(compact)

    batches = Batches(table.split("train"), 256, seed=5)
    config = OptimizerConfig(learning_rate=1e-2, weight_decay=1e-4)
    losses = [
        [train_epoch(model, batches, optimizer, epoch) for epoch in (1, 2)]
        for model, optimizer in ((m, build_optimizer(m, config)) for m in (dense, compact))
    ]
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(compact.embedding.values, dense.embedding.weight[mask], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        compact.linear_term.weights.weight, dense.linear_term.weights.weight, rtol=1e-4, atol=1e-5
    )
    assert not torch.allclose(compact.embedding.values, start.embedding.weight[mask], atol=1e-3)  # it did learn


def test_retraining_reports_what_it_weighs_and_reads_test_after_the_best_weights(small_table):
    table = small_table
    _, ticket = ticket_for(table, 300)
    data = SplitBatches.of(table, 256, seed=0)
    reads = []

    class Watched:
        num_rows = data.test.num_rows

        def __len__(self):
            return len(data.test)

        def epoch(self, epoch, start=0):
            reads.append(epoch)
            return data.test.epoch(epoch, start)

    watched = SplitBatches(train=data.train, validation=data.validation, test=Watched())
    trained = retrain_ticket(ticket, fm(table, seed=3), watched, TrainingConfig(max_epochs=3, patience=3))
    assert trained.num_parameters == 300
    assert trained.storage_bytes > 300 * 4  # places cost bytes too
    assert trained.storage_bytes == trained.model.embedding.storage_bytes()
    assert len(reads) == 1
    assert trained.test is not None
    assert 0.5 < trained.test.auc <= 1
