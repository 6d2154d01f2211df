"""The contract checks fail on classes that violate the contract and name the requirement."""

import pytest
import torch
from torch import nn

from thresher.baselines.hashing import HashConfig, HashEmbedding
from thresher.compact.method_table import MethodTable
from thresher.embeddings.stored_form import StoredForm
from thresher.embeddings.uniform import UniformConfig, UniformEmbedding
from thresher.models.fm import Fm, FmConfig
from thresher.testing import check_embedding, check_model, toy_batch

CONFIG = UniformConfig(embedding_dim=4)


def test_toy_batch_is_the_same_for_the_same_seed():
    assert torch.equal(toy_batch(seed=3).ids, toy_batch(seed=3).ids)
    assert not torch.equal(toy_batch(seed=3).ids, toy_batch(seed=4).ids)


class WrongShape(UniformEmbedding):
    def forward(self, ids):
        return super().forward(ids).flatten(1)


class Noisy(UniformEmbedding):
    def forward(self, ids):
        return super().forward(ids) + torch.randn(self.embedding_dim)


class BatchDependent(UniformEmbedding):
    def forward(self, ids):
        vectors = super().forward(ids)
        return vectors - vectors.flatten(0, -2)[:1] if vectors.numel() else vectors


class Frozen(UniformEmbedding):
    def forward(self, ids):
        return super().forward(ids).detach()


class OtherParameters(UniformEmbedding):
    def parameter_groups(self):
        return {"embeddings": [nn.Parameter(torch.zeros(1))]}


class UnknownRole(UniformEmbedding):
    def parameter_groups(self):
        return {"tables": [self.weight]}


class FloatSize(UniformEmbedding):
    def num_parameters(self):
        return 1.5


class NoSize(UniformEmbedding):
    def num_parameters(self):
        return 0


class TinyBytes(UniformEmbedding):
    def storage_bytes(self):
        return 1


class NoGroups(UniformEmbedding):
    def parameter_groups(self):
        return {}


class NoSearch(UniformEmbedding):
    search_algorithm = "nonexistent"


class HiddenState(UniformEmbedding):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.shift = torch.randn(self.embedding_dim)

    def forward(self, ids):
        return super().forward(ids) + self.shift


class OtherRows(UniformEmbedding):
    def distinct_rows(self, ids):
        rows, distinct = super().distinct_rows(ids)
        return 2 * rows, distinct


class WrongRows(HashEmbedding):
    """Stores the rows in the wrong order."""

    def to_stored(self):
        form = super().to_stored()
        tensors = {**form.tensors, "weight": form.tensors["weight"].flip(0)}
        return StoredForm("HashEmbedding", tensors, form.metadata)


class Unreadable(HashEmbedding):
    def to_stored(self):
        return StoredForm("unregistered", self.state_dict(), {})


@pytest.mark.parametrize(
    ("broken", "message"), [(WrongRows, "stored form must give the same"), (Unreadable, "must be readable")]
)
def test_a_broken_stored_form_fails(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_embedding(broken, HashConfig(embedding_dim=4, num_buckets=20))


def test_a_stored_form_must_reject_ids_outside_the_table(monkeypatch):
    def unchecked(self, ids, *, out_of_range="error"):
        return self._embedding(ids.clamp(0, self.num_features - 1)) * (ids.max() < 51) * (ids.min() >= 0)

    monkeypatch.setattr(MethodTable, "lookup", unchecked)
    with pytest.raises(AssertionError, match="must raise IndexError for id -1"):
        check_embedding(HashEmbedding, HashConfig(embedding_dim=4, num_buckets=20))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (WrongShape, r"must give vectors \[B, F, D\]"),
        (Noisy, "same vectors each time"),
        (BatchDependent, r"as in a batch|not on the batch"),
        (Frozen, "must have gradients"),
        (OtherParameters, "only the table's own parameters"),
        (UnknownRole, "'tables'"),
        (FloatSize, "num_parameters"),
        (NoSize, r"num_parameters\(\) must be an int above 0"),
        (TinyBytes, r"storage_bytes\(\) must be at least"),
        (NoGroups, "role of the parameters"),
        (NoSearch, "unknown search algorithm 'nonexistent'"),
        (OtherRows, "distinct_rows.*must equal the output of forward"),
        (HiddenState, "state_dict must hold the whole state"),
    ],
)
def test_a_broken_embedding_fails(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_embedding(broken, CONFIG)


class Relative(Fm):
    def forward(self, ids, dense=None, bags=()):
        logits = super().forward(ids, dense, bags)
        return logits - logits[:1].sum().detach()


class IgnoresBags(Fm):
    def forward(self, ids, dense=None, bags=()):
        return super().forward(ids, dense)


class IgnoresDense(Fm):
    def __init__(self, embedding, config, *, num_dense=0):
        super().__init__(embedding, config)

    def forward(self, ids, dense=None, bags=()):
        return super().forward(ids, None, bags)


class Constant(Fm):
    def forward(self, ids, dense=None, bags=()):
        return self.linear_term.bias.expand(len(ids))


class Probabilities(Fm):
    def forward(self, ids, dense=None, bags=()):
        return torch.sigmoid(4 * super().forward(ids, dense, bags))


class Column(Fm):
    def forward(self, ids, dense=None, bags=()):
        return super().forward(ids, dense, bags).unsqueeze(1)


class NeedsRows(Fm):
    def forward(self, ids, dense=None, bags=()):
        return super().forward(ids, dense, bags) if len(ids) else torch.zeros(1)


class PlainModule(nn.Module):
    def __init__(self, embedding, config):
        super().__init__()


def test_checks_list_everything_a_plain_module_lacks():
    with pytest.raises(AssertionError) as model:
        check_model(PlainModule, object())
    for part in ("not a subclass of thresher.CtrModel", "__init__ takes", "no forward(ids", "thresher.ModelConfig"):
        assert part in str(model.value)
    with pytest.raises(AssertionError) as method:
        check_embedding(PlainModule, object())
    for part in ("thresher.FieldEmbedding", "__init__ takes", "no storage_bytes()", "thresher.EmbeddingConfig"):
        assert part in str(method.value)


def test_a_function_that_builds_a_model_is_checked_with_its_config():
    check_model(lambda *args, **settings: Fm(*args, **settings), FmConfig())
    with pytest.raises(AssertionError, match=r"config must be an instance of a subclass of thresher.ModelConfig"):
        check_model(lambda *args, **settings: Fm(*args, **settings), object())


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (Probabilities, "not probabilities|loss must fall"),
        (Column, r"logits must have shape \[B\], got \(64, 1\)"),
        (NeedsRows, "empty batch"),
        (Relative, "only on its row, not on the batch"),
        (IgnoresBags, "multi-valued"),
        (IgnoresDense, "must depend on the dense inputs"),
        (Constant, "loss must fall"),
    ],
)
def test_a_broken_model_fails(broken, message):
    with pytest.raises(AssertionError, match=message):
        check_model(broken, FmConfig())
