"""Distinct vectors give the results of one vector per id, and modified layers are called as usual."""

import copy

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations, prune

from thresher.compact.embedding import CompactEmbedding
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.embeddings.uniform import UniformConfig, UniformEmbedding
from thresher.kernels.distinct import find_distinct
from thresher.kernels.interactions import fm_from_rows, join_rows
from thresher.kernels.rows import expand_rows
from thresher.models.autoint import AutoIntConfig
from thresher.models.base import CtrModel, DistinctVectors
from thresher.models.fm import DeepFm, DeepFmConfig
from thresher.models.layers import DeepTerm, SelfAttention
from thresher.models.model_registry import build_model

FIELD_SIZES = (3, 1, 6, 4)
DEEPFM = DeepFmConfig(hidden_sizes=(5,), dropout=0.0)
AUTOINT = AutoIntConfig(num_layers=2, attention_dim=4, hidden_sizes=(5,), dropout=0.0)
MODELS = (
    DEEPFM,
    DeepFmConfig(hidden_sizes=()),
    AUTOINT,
    AutoIntConfig(num_layers=1, attention_dim=4, deep_term=False, linear_term=True, residual=False),
)


def ids_of_fields(num_rows, *, dtype=torch.int32):
    generator = torch.Generator().manual_seed(num_rows)
    offset, columns = 0, []
    for size in FIELD_SIZES:
        columns.append(offset + torch.randint(size, (num_rows,), generator=generator))
        offset += size
    return torch.stack(columns, 1).to(dtype)


def new_model(config=DEEPFM, embedding=None, **settings):
    torch.manual_seed(0)
    table = build_embedding(FIELD_SIZES, UniformConfig(embedding_dim=32)) if embedding is None else embedding
    return build_model(table, config, **settings).train()


def gradients(model, ids, dense=None):
    model.zero_grad()
    logits = model(ids, dense)
    functional.binary_cross_entropy_with_logits(logits, (torch.arange(len(ids)) % 2).float()).backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return logits.detach(), {name: grad.to_dense() if grad.is_sparse else grad for name, grad in found.items()}


def assert_same_as_one_vector_per_id(model, monkeypatch, ids, dense=None, *, expect=DistinctVectors, twin=None):
    """Compare with a copy that uses one vector per id; `expect` is the type of vectors the model uses."""
    taken, twin = [], copy.deepcopy(model) if twin is None else twin
    taking = CtrModel.distinct_vectors

    def watched(self, *inputs):
        taken.append(taking(self, *inputs))
        return taken[-1]

    with monkeypatch.context() as patched:
        patched.setattr(CtrModel, "distinct_vectors", watched)
        logits, grads = gradients(model, ids, dense)
        patched.setattr(CtrModel, "distinct_vectors", lambda self, ids, bags, *blocks: self.vectors(ids, bags))
        expected_logits, expected = gradients(twin, ids, dense)
    assert [type(found) for found in taken] == [expect]
    torch.testing.assert_close(logits, expected_logits, rtol=1e-4, atol=1e-5)
    assert grads.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(
            grads[name], grad, rtol=1e-3, atol=1e-5, msg=lambda message, name=name: f"{name}: {message}"
        )
    return taken[0]


@pytest.mark.parametrize("num_dense", [0, 2])
@pytest.mark.parametrize("config", MODELS, ids=repr)
def test_logits_and_gradients_equal_those_of_one_vector_per_id(config, num_dense, monkeypatch):
    model = new_model(config, num_dense=num_dense)
    dense = torch.randn(40, num_dense) if num_dense else None
    assert_same_as_one_vector_per_id(model, monkeypatch, ids_of_fields(40), dense)


@pytest.mark.parametrize("row_gradients", [False, True])
@pytest.mark.parametrize("config", [DEEPFM, AUTOINT], ids=repr)
def test_fully_pruned_rows_count_as_zeros(config, row_gradients, monkeypatch):
    embedding = PepEmbedding(FIELD_SIZES, PepConfig(embedding_dim=32))
    embedding.weight.data[::3] *= 1e-4
    embedding.clock.fill_(-4.0)
    embedding.row_gradients = row_gradients
    model, ids = new_model(config, embedding), ids_of_fields(25, dtype=torch.int64)
    embedding(ids)  # rows are known to be pruned once they have been looked up
    vectors = assert_same_as_one_vector_per_id(model, monkeypatch, ids)
    if row_gradients:
        assert (vectors.distinct.places == vectors.distinct.num_ids).any()
    assert embedding.seen[ids.unique()].all()


@pytest.mark.parametrize("config", [DEEPFM, AUTOINT], ids=repr)
def test_compact_embeddings_use_distinct_vectors(config, monkeypatch):
    weight = torch.randn(sum(FIELD_SIZES), 32)
    embedding = CompactEmbedding.from_mask(FIELD_SIZES, weight.abs() > 0.7, weight)
    assert_same_as_one_vector_per_id(new_model(config, embedding), monkeypatch, ids_of_fields(25))


@given(st.integers(0, 12), st.integers(1, 5), st.integers(0, 1000))
def test_project_concatenated_equals_the_product_with_concatenated_vectors(num_rows, width, seed):
    generator, ids = torch.Generator().manual_seed(seed), ids_of_fields(num_rows)
    distinct = find_distinct(ids, sum(FIELD_SIZES))
    for dtype, rtol in ((torch.float32, 1e-4), (torch.float64, 1e-10)):  # the kernel, the twin
        table, weight, upstream = (
            torch.randn(*shape, generator=generator, dtype=dtype)
            for shape in ((sum(FIELD_SIZES), 3), (width, len(FIELD_SIZES) * 3), (num_rows, width))
        )
        inputs = (table.requires_grad_(), weight.requires_grad_())
        found = DistinctVectors(table[distinct.ids], distinct, FIELD_SIZES).project_concatenated(weight)
        expected = table[ids.long()].flatten(1) @ weight.T
        torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol)
        torch.testing.assert_close(
            torch.autograd.grad(found, inputs, upstream), torch.autograd.grad(expected, inputs, upstream),
            rtol=rtol, atol=rtol,
        )  # fmt: skip


@pytest.mark.parametrize("config", MODELS, ids=repr)
def test_logits_are_equal_in_evaluation(config, monkeypatch):
    model, ids = new_model(config).eval(), ids_of_fields(60)
    with torch.inference_mode():
        found = model(ids)
        monkeypatch.setattr(CtrModel, "distinct_vectors", lambda self, ids, bags, *blocks: self.vectors(ids, bags))
        torch.testing.assert_close(found, model(ids), rtol=1e-5, atol=1e-6)


def test_ids_in_columns_of_other_fields_use_the_weights_of_the_column(monkeypatch):
    ids = ids_of_fields(40).flip(1).contiguous()
    assert_same_as_one_vector_per_id(new_model(), monkeypatch, ids)


def test_omitted_ids_add_nothing_and_get_no_gradient():
    distinct = find_distinct(torch.tensor([[0, 5], [0, 9]]), 10).without(torch.tensor([True, False, False]))
    rows = torch.tensor([[1.0, 2.0], [30.0, 40.0]], requires_grad=True)
    joined = join_rows(rows, distinct)
    assert joined.tolist() == [[1.0, 2.0], [30.0, 40.0]]
    joined.backward(torch.tensor([[1.0, 0.0], [0.0, 7.0]]))
    assert rows.grad.tolist() == [[1.0, 0.0], [0.0, 7.0]]


def test_project_applies_a_bias_to_omitted_vectors():
    distinct = find_distinct(torch.tensor([[0, 5], [0, 9]]), 10).without(torch.tensor([True, False, False]))
    vectors, layer = DistinctVectors(torch.randn(2, 3), distinct, (5, 5)), nn.Linear(3, 2)
    torch.testing.assert_close(vectors.project(layer), layer(vectors.expand()))


@pytest.mark.parametrize("from_rows", [join_rows, expand_rows, fm_from_rows])
def test_kernels_can_be_differentiated_twice(from_rows):
    distinct = find_distinct(ids_of_fields(9), sum(FIELD_SIZES)).without(torch.arange(14) == 2)
    grads = []
    for dtype in (torch.float32, torch.float64):  # the kernel, the twin
        rows = torch.linspace(-1, 1, distinct.num_ids * 3, dtype=dtype).view(-1, 3).requires_grad_()
        (first,) = torch.autograd.grad(from_rows(rows, distinct).square().sum(), rows, create_graph=True)
        grads.append(torch.autograd.grad(first.pow(3).sum(), rows)[0])
    assert grads[0].abs().sum() > 0
    torch.testing.assert_close(grads[0].double(), grads[1], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("config", [DEEPFM, AUTOINT], ids=repr)
def test_models_can_be_differentiated_twice(config):
    model = new_model(config)
    weight = model.embedding.weight
    (grad,) = torch.autograd.grad(model(ids_of_fields(30)).sum(), weight, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), weight)
    assert second.abs().sum() > 0


def test_distinct_vectors_are_used_if_ids_repeat_and_the_table_is_small():
    model, ids = new_model(), ids_of_fields(50)
    blocks = (model.deep_term,)
    found = model.distinct_vectors(ids, (), *blocks)
    assert isinstance(found, DistinctVectors)
    assert len(found.rows) == len(ids.unique())
    torch.testing.assert_close(found.expand(), model.vectors(ids))
    assert isinstance(model.distinct_vectors(ids[:1], (), *blocks), torch.Tensor)  # all distinct
    narrow = new_model(embedding=build_embedding(FIELD_SIZES, UniformConfig(embedding_dim=31)))
    assert isinstance(narrow.distinct_vectors(ids, (), narrow.deep_term), torch.Tensor)
    with torch.autocast("cpu", torch.bfloat16):
        assert isinstance(model.distinct_vectors(ids, (), *blocks), torch.Tensor)
    assert isinstance(copy.deepcopy(model).double().distinct_vectors(ids, (), *blocks), torch.Tensor)
    found = model.eval().distinct_vectors(ids, (), *blocks)
    assert isinstance(found, DistinctVectors)
    few = ids[[0] * 3]  # 12 ids of 4 features, in a table of 14
    assert isinstance(model.distinct_vectors(few, (), *blocks), torch.Tensor)


class ScaledTable(UniformEmbedding):
    def forward(self, ids):
        return 3 * super().forward(ids)


class ScaledVectors(DeepFm):
    def vectors(self, ids, bags=()):
        return 3 * super().vectors(ids, bags)


class DoubledTerm(DeepTerm):
    def forward(self, vectors, dense=None):
        return super().forward(2 * vectors, dense)


class DoubledLinear(nn.Linear):
    def forward(self, inputs):
        return 2 * super().forward(inputs)


def scaled_table():
    return new_model(embedding=ScaledTable(FIELD_SIZES, UniformConfig(embedding_dim=32)))


def scaled_table_of_row_gradients():
    model = scaled_table()
    model.embedding.row_gradients = True
    return model


def scaled_vectors():
    return ScaledVectors(build_embedding(FIELD_SIZES, UniformConfig(embedding_dim=32)), DEEPFM)


def own_deep_term():
    model = new_model()
    model.deep_term = DoubledTerm(4, 32, 0, DEEPFM)
    return model


def hooked_attention():
    model = new_model(AUTOINT)
    model.attention[0].register_forward_pre_hook(lambda block, inputs: (2 * inputs[0],))
    return model


@pytest.mark.parametrize(
    "changed", [scaled_table, scaled_table_of_row_gradients, scaled_vectors, own_deep_term, hooked_attention]
)
def test_modified_lookups_and_blocks_use_one_vector_per_id(changed, monkeypatch):
    model = changed().train()
    assert_same_as_one_vector_per_id(model, monkeypatch, ids_of_fields(30), expect=torch.Tensor)
    model.eval()
    model.embedding.row_gradients = False
    vectors = model.vectors(ids_of_fields(30))
    plain = functional.embedding(ids_of_fields(30), model.embedding.weight)
    times = 3 if changed in (scaled_table, scaled_table_of_row_gradients, scaled_vectors) else 1
    torch.testing.assert_close(vectors, times * plain)


def hooked(layer):
    layer.register_forward_hook(lambda layer, inputs, output: 2 * output)
    return layer


def own_linear(layer):
    changed = DoubledLinear(layer.in_features, layer.out_features, bias=layer.bias is not None)
    changed.load_state_dict(layer.state_dict())
    return changed


CHANGES = {
    "hook": hooked,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.5),
    "weight norm": parametrizations.weight_norm,
    "own forward": own_linear,
    "no bias": lambda layer: nn.Linear(layer.in_features, layer.out_features, bias=False),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("config", "of"), [(DEEPFM, "deep_term.layers.0"), (AUTOINT, "attention.0.query")])
def test_a_modified_layer_is_called_as_usual(change, config, of, monkeypatch):
    def changed():
        model = new_model(config)
        model.set_submodule(of, CHANGES[change](model.get_submodule(of)))
        return model

    model = changed()
    for _ in range(2):  # hooks may leave state behind after the first step
        assert_same_as_one_vector_per_id(model, monkeypatch, ids_of_fields(30), twin=changed())


def test_subclasses_do_not_take_distinct_vectors():
    from thresher.models.base import takes_distinct

    attention = SelfAttention(6, 4, 2, dropout=0.0, residual=True)
    assert takes_distinct(None)
    assert takes_distinct(nn.Sequential(attention, nn.Identity()))
    assert not takes_distinct(nn.Sequential(nn.Identity(), attention))
    assert not takes_distinct(nn.Sequential())
    assert not takes_distinct(DoubledTerm(4, 32, 0, DEEPFM))
