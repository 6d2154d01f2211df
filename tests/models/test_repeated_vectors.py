"""Distinct vectors multiplied once give what vectors multiplied place by place give, in training and out of it."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from thresher.embeddings.pep import PepConfig
from thresher.embeddings.registry import build_embedding, embedding_configs, registered_embeddings
from thresher.embeddings.uniform import UniformConfig
from thresher.kernels.distinct import find_distinct
from thresher.kernels.joined import join_rows
from thresher.models.autoint import AutoIntConfig
from thresher.models.base import CtrModel
from thresher.models.deepfm import DeepFmConfig
from thresher.models.registry import build_model
from thresher.models.repeated_vectors import RepeatedVectors

FIELD_SIZES = (3, 1, 6, 4)
MODELS = (
    DeepFmConfig(hidden_sizes=(5,), dropout=0.0),
    DeepFmConfig(hidden_sizes=()),
    AutoIntConfig(num_layers=2, attention_dim=4, hidden_sizes=(5,), dropout=0.0),
    AutoIntConfig(num_layers=1, attention_dim=4, deep_term=False, linear_term=True, residual=False),
)


def ids_of_fields(num_rows, *, dtype=torch.int32):
    generator = torch.Generator().manual_seed(num_rows)
    offset, columns = 0, []
    for size in FIELD_SIZES:
        columns.append(offset + torch.randint(size, (num_rows,), generator=generator))
        offset += size
    return torch.stack(columns, 1).to(dtype)


def repeated(rows, ids):
    distinct = find_distinct(ids, sum(FIELD_SIZES))
    return RepeatedVectors(rows[distinct.ids], distinct, FIELD_SIZES)


def gradients(model, ids, dense=None):
    model.zero_grad()
    logits = model(ids, dense)
    functional.binary_cross_entropy_with_logits(logits, (torch.arange(len(ids)) % 2).float()).backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return logits.detach(), {name: grad.to_dense() if grad.is_sparse else grad for name, grad in found.items()}


def place_by_place(self, ids, bags=()):
    return self.vectors(ids, bags)


def assert_same_either_way(model, monkeypatch, ids, dense=None):
    twin = copy.deepcopy(model)
    logits, grads = gradients(model, ids, dense)
    monkeypatch.setattr(CtrModel, "repeated_vectors", place_by_place)
    expected_logits, expected = gradients(twin, ids, dense)
    torch.testing.assert_close(logits, expected_logits, rtol=1e-4, atol=1e-5)
    assert grads.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(
            grads[name], grad, rtol=1e-3, atol=1e-5, msg=lambda told, name=name: f"{name}: {told}"
        )


@pytest.mark.parametrize("num_dense", [0, 2])
@pytest.mark.parametrize("config", MODELS, ids=repr)
def test_logits_and_gradients_are_those_of_vectors_place_by_place(config, num_dense, monkeypatch):
    torch.manual_seed(0)
    model = build_model(build_embedding(FIELD_SIZES, UniformConfig(embedding_dim=6)), config, num_dense=num_dense)
    dense = torch.randn(40, num_dense) if num_dense else None
    assert_same_either_way(model.train(), monkeypatch, ids_of_fields(40), dense)


@pytest.mark.parametrize("method", registered_embeddings())
def test_every_method_gives_the_same_either_way(method, monkeypatch):
    torch.manual_seed(0)
    config = embedding_configs()[method](embedding_dim=8)
    counts = list(range(1, 1 + sum(FIELD_SIZES)))
    model = build_model(build_embedding(FIELD_SIZES, config, feature_counts=counts), MODELS[0]).train()
    state = torch.get_rng_state()  # AutoDim draws noise: both ways the same
    original = type(model).forward

    def seeded(self, *inputs):
        torch.set_rng_state(state)
        return original(self, *inputs)

    monkeypatch.setattr(type(model), "forward", seeded)
    assert_same_either_way(model, monkeypatch, ids_of_fields(30))


@pytest.mark.parametrize("row_gradients", [False, True])
@pytest.mark.parametrize("config", [MODELS[0], MODELS[2]], ids=repr)
def test_rows_that_are_pruned_altogether_count_as_zeros(config, row_gradients, monkeypatch):
    torch.manual_seed(0)
    embedding = build_embedding(FIELD_SIZES, PepConfig(embedding_dim=4))
    embedding.weight.data[::3] *= 1e-4
    embedding.clock.fill_(-4.0)
    embedding.row_gradients = row_gradients
    model = build_model(embedding, config).train()
    assert_same_either_way(model, monkeypatch, ids_of_fields(25, dtype=torch.int64))


@given(st.integers(0, 12), st.integers(1, 5), st.integers(0, 1000), st.booleans())
def test_joined_is_the_product_with_all_vectors_end_to_end(num_rows, width, seed, in_own_columns):
    generator = torch.Generator().manual_seed(seed)
    ids = ids_of_fields(num_rows)
    if not in_own_columns:
        ids = ids[:, torch.randperm(len(FIELD_SIZES), generator=generator)].contiguous()
    for dtype, rtol in ((torch.float32, 1e-4), (torch.float64, 1e-10)):  # the kernel, the twin
        table, weight, upstream = (
            torch.randn(*shape, generator=generator, dtype=dtype)
            for shape in ((sum(FIELD_SIZES), 3), (width, len(FIELD_SIZES) * 3), (num_rows, width))
        )
        inputs = (table.requires_grad_(), weight.requires_grad_())
        found = repeated(table, ids).joined(weight)
        expected = table[ids.long()].flatten(1) @ weight.T
        torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol)
        torch.testing.assert_close(
            torch.autograd.grad(found, inputs, upstream), torch.autograd.grad(expected, inputs, upstream),
            rtol=rtol, atol=rtol,
        )  # fmt: skip


def test_ids_left_out_add_nothing_and_get_no_gradient():
    distinct = find_distinct(torch.tensor([[0, 5], [0, 9]]), 10).without(torch.tensor([True, False, False]))
    rows = torch.tensor([[1.0, 2.0], [30.0, 40.0]], requires_grad=True)
    joined = join_rows(rows, distinct)
    assert joined.tolist() == [[1.0, 2.0], [30.0, 40.0]]
    joined.backward(torch.tensor([[1.0, 0.0], [0.0, 7.0]]))
    assert rows.grad.tolist() == [[1.0, 0.0], [0.0, 7.0]]


def test_vectors_come_once_each_in_training_alone():
    model = build_model(build_embedding(FIELD_SIZES, UniformConfig(embedding_dim=4)), MODELS[0])
    ids = ids_of_fields(50)
    found = model.train().repeated_vectors(ids)
    assert isinstance(found, RepeatedVectors)
    assert len(found.rows) == len(ids.unique()) < ids.numel()
    torch.testing.assert_close(found.spread(), model.vectors(ids))
    assert isinstance(model.eval().repeated_vectors(ids), torch.Tensor)
