"""Appended features: old rows stay what they were, new ones begin as asked, and all of it trains on."""

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from thresher.attach.compact import CompactBag
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.table import CompactTable
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.vocabulary import Vocabulary
from thresher.data.schema import Field, Label, Schema
from thresher.embeddings.method_registry import build_embedding, embedding_config
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError, FormatError
from thresher.experiment.extend import (
    Growth,
    extend_bundle,
    extend_embedding,
    extend_table,
    extend_ticket,
    to_trainable,
)
from thresher.models.model_registry import build_model, model_config
from thresher.search.budget import Budget
from thresher.search.ticket import MaskTicket, Provenance, kept_weights
from thresher.serving.bundle import open_bundle, save_bundle
from thresher.serving.predictor import load_bundle

OLD, NEW = (3, 2, 4), (5, 2, 7)


def naive(dense, old_sizes, new_sizes, start, given_rows=None):
    """Field by field: the old rows, then the new ones."""
    blocks, given = [], iter(() if given_rows is None else given_rows)
    for block, new in zip(dense.split(old_sizes), new_sizes, strict=True):
        added = new - len(block)
        first = block[0] if start == "unknown" else torch.zeros_like(block[0])
        rows = [next(given) if given_rows is not None else first for _ in range(added)]
        blocks += [block, *(row[None] for row in rows)]
    return torch.cat(blocks)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=4), st.integers(0, 10**6))
def test_extended_tables_are_old_rows_then_new_ones(sizes, seed):
    torch.manual_seed(seed)
    old, new = tuple(size for size, _ in sizes), tuple(size + added for size, added in sizes)
    growth, dense = Growth(old, new), torch.randn(sum(old), 3)
    mask = torch.rand(dense.shape) < 0.5
    embedding = CompactEmbedding.from_mask(old, mask, dense)
    table = CompactTable.from_mask(mask, dense)
    rows = torch.randn(sum(new) - sum(old), 3) * (torch.rand(sum(new) - sum(old), 3) < 0.5)
    for start in ("unknown", "zeros", rows):
        expected = naive(dense * mask, old, new, start, rows if start is rows else None)
        extended = extend_embedding(embedding, growth, start)
        assert extended.field_sizes == new
        assert torch.equal(extended(torch.arange(sum(new))).detach(), expected)
        assert np.array_equal(extend_table(table, growth, start).to_dense(), expected.numpy())


def test_fields_may_not_shrink_or_vanish():
    for new in ((2, 4), (3,)):
        with pytest.raises(ConfigError, match="cannot grow"):
            Growth((3, 4), new)


def test_given_rows_must_be_as_many_as_the_new_features():
    embedding = CompactEmbedding.from_mask([3], torch.ones(3, 2, dtype=torch.bool), torch.ones(3, 2))
    with pytest.raises(ConfigError, match=r"\[2, 2\] rows were given for 1 new features of width 2"):
        extend_embedding(embedding, Growth.of_table(3, 4), torch.ones(2, 2))


def test_a_foreign_table_has_no_unknown_feature_to_start_from():
    embedding = CompactEmbedding.from_mask([3], torch.ones(3, 2, dtype=torch.bool), torch.ones(3, 2))
    growth = Growth.of_table(3, 5)
    assert extend_embedding(embedding, growth)(torch.tensor([2, 3, 4])).tolist() == [[1, 1], [0, 0], [0, 0]]
    with pytest.raises(ConfigError, match="no unknown feature"):
        extend_embedding(embedding, growth, "unknown")


def test_an_extended_table_is_called_as_before_or_refused():
    positions, values = torch.arange(6), torch.ones(6)
    scaled = CompactEmbedding([3], 2, positions, values)
    scaled.scale_grad_by_freq = True
    assert extend_embedding(scaled, Growth.of_table(3, 5)).scale_grad_by_freq
    with pytest.raises(ConfigError, match=r"stands for an nn.EmbeddingBag.*extend_ticket"):
        extend_embedding(CompactBag(nn.EmbeddingBag(3, 2), positions, values), Growth.of_table(3, 5))


def test_growth_that_is_not_of_the_table_is_refused():
    mask = torch.ones(3, 2, dtype=torch.bool)
    embedding, table = CompactEmbedding.from_mask([3], mask, torch.ones(3, 2)), CompactTable.from_mask(mask, mask)
    for extend, it in ((extend_embedding, embedding), (extend_table, table)):
        with pytest.raises(ConfigError, match="the table has 3 rows, the growth begins with 4"):
            extend(it, Growth.of_table(4, 5))
        with pytest.raises(ConfigError, match="start is 'zero'"):
            extend(it, Growth.of_table(3, 5), "zero")


@pytest.fixture
def ticket():
    model, masks = new_model(OLD), {"embedding": torch.rand(9, 4) < 0.5}
    weights = kept_weights(model, masks)
    return MaskTicket(Budget.parse("18"), masks, weights, weights, Provenance("pep", 0, 1, 1))


def test_a_ticket_names_tables_it_does_not_have(ticket):
    for words in ({"growth": {"nope": Growth(OLD, NEW)}}, {"growth": {}, "start": {"nope": "zeros"}}):
        with pytest.raises(ConfigError, match="the ticket has no table nope; it prunes embedding"):
            extend_ticket(ticket, **words)


def test_a_table_a_ticket_keeps_whole_takes_given_rows_and_zeros(ticket):
    name, growth = "linear_term.weights", Growth(OLD, NEW)
    given = torch.arange(1.0, 6)[:, None]
    for start, rows in ((given, given), ("zeros", torch.zeros(5, 1))):
        extended = extend_ticket(ticket, {name: growth}, {name: start})
        for weights in (extended.initial, extended.final):
            assert torch.equal(weights.state[f"{name}.weight"][growth.new_rows()], rows)
    with pytest.raises(ConfigError, match=r"\[3, 1\] rows were given for 5 new features of width 1"):
        extend_ticket(ticket, {name: growth}, {name: torch.ones(3, 1)})
    with pytest.raises(ConfigError, match="the table has 9 rows, the growth begins with 4"):
        extend_ticket(ticket, {name: Growth.of_table(4, 5)})


@pytest.mark.parametrize(("value_type", "step"), [("fp16", 0.0), ("int8", 1 / 127), ("int4", 1 / 7)])
def test_old_values_of_few_bits_move_by_a_step_of_their_scale_at_most(value_type, step):
    torch.manual_seed(0)
    mask, dense = torch.rand(40, 8) < 0.5, torch.randn(40, 8)
    table = CompactTable.from_mask(mask, dense, value_type=value_type)
    extended = extend_table(table, Growth((40,), (50,))).to_dense()
    assert np.abs(extended[:40] - table.to_dense()).max() <= step * dense.abs().max().item()


def new_model(sizes, seed=0):
    torch.manual_seed(seed)
    return build_model(build_embedding(sizes, PepConfig(embedding_dim=4)), model_config("deepfm"))


@pytest.mark.parametrize("rewind", ["initial", "final"])
def test_an_extended_ticket_fits_the_larger_model(rewind):
    start, end = new_model(OLD, seed=1), new_model(OLD, seed=2)
    masks = {"embedding": torch.rand(9, 4) < 0.5}
    ticket = MaskTicket(
        Budget.parse("18"), masks, kept_weights(start, masks), kept_weights(end, masks), Provenance("pep", 0, 1, 1)
    )
    growth = Growth(OLD, NEW)
    extended = extend_ticket(ticket, {"embedding": growth, "linear_term.weights": growth})
    larger = new_model(NEW, seed=3)
    extended.apply_(larger, rewind=rewind)
    source = start if rewind == "initial" else end
    ids = torch.arange(sum(NEW))
    expected = naive(source.embedding.weight.detach() * masks["embedding"], OLD, NEW, "unknown")
    assert torch.equal(larger.embedding(ids).detach(), expected)
    first_order = naive(source.linear_term.weights.weight.detach(), OLD, NEW, "unknown")
    assert torch.equal(larger.linear_term.weights.weight.detach(), first_order)
    assert extended.num_parameters == int(extended.masks["embedding"].sum()) == larger.embedding.num_parameters()


def encoder(*values):
    vocabularies = [Vocabulary(pl.Series("value", v), np.ones(len(v), np.int64)) for v in values]
    fields = tuple(Field(name=f"f{k}", size=len(v) + 1) for k, v in enumerate(values))
    return RowEncoder(Schema(fields=fields, label=Label(column="y")), vocabularies)


@pytest.fixture
def bundle(tmp_path):
    torch.manual_seed(0)
    before = encoder(["a", "b"], ["x"])
    sizes = before.schema.field_sizes
    embedding = CompactEmbedding.from_mask(sizes, torch.rand(5, 4) < 0.6, torch.randn(5, 4))
    model = build_model(embedding, model_config("deepfm")).eval()
    facts = {"budget": "12", "num_parameters": embedding.num_parameters(), "storage_bytes": embedding.storage_bytes()}
    return save_bundle(tmp_path / "old", model, model_config("deepfm"), before, facts=facts)


ROWS = pl.DataFrame({"f0": ["a", "b", "c", "nobody"], "f1": ["x", "y", "x", "z"]})
LARGER = (["a", "b", "c"], ["x", "y", "z"])


def test_an_extended_bundle_predicts_as_before_until_it_is_refreshed(bundle, tmp_path):
    before = load_bundle(bundle).predict(ROWS)
    larger = extend_bundle(bundle, tmp_path / "new", encoder(*LARGER))
    predictor = load_bundle(larger)
    assert predictor.schema.field_sizes == (4, 4)
    np.testing.assert_allclose(predictor.predict(ROWS), before, rtol=1e-6)
    assert predictor.bundle.facts["budget"] == "12"
    assert predictor.bundle.facts["num_parameters"] == predictor.bundle.num_parameters
    assert predictor.bundle.facts["storage_bytes"] == predictor.bundle.searched_bytes
    assert predictor.bundle.num_parameters > open_bundle(bundle).num_parameters

    model = to_trainable(open_bundle(larger))
    assert model.training
    assert type(model.linear_term.weights) is nn.Embedding
    ids = torch.from_numpy(predictor.encoder.encode_frame(ROWS).ids)
    torch.testing.assert_close(model.eval()(ids).sigmoid().detach(), torch.from_numpy(before))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    labels = torch.tensor([0.0, 1.0, 1.0, 0.0])
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(ids), labels)
        loss.backward()
        optimizer.step()
    refreshed = save_bundle(tmp_path / "refreshed", model.eval(), model_config("deepfm"), predictor.encoder)
    assert np.abs(load_bundle(refreshed).predict(ROWS) - labels.numpy()).mean() < np.abs(before - labels.numpy()).mean()


def test_zeros_for_new_features_change_only_their_rows(bundle, tmp_path):
    before = load_bundle(bundle).predict(ROWS)
    after = load_bundle(extend_bundle(bundle, tmp_path / "new", encoder(*LARGER), "zeros")).predict(ROWS)
    np.testing.assert_allclose(after[:1], before[:1], rtol=1e-6)
    assert not np.allclose(after[1:3], before[1:3], rtol=1e-3)


def test_given_rows_are_for_the_embedding_and_other_tables_start_from_their_unknown_feature(bundle, tmp_path):
    growth, rows, old = Growth((3, 2), (4, 4)), torch.randn(3, 4), open_bundle(bundle).tables
    new = open_bundle(extend_bundle(bundle, tmp_path / "new", encoder(*LARGER), rows)).tables
    assert np.array_equal(new["embedding"].to_dense()[growth.new_rows()], rows.numpy())
    first_order = [tables["linear_term.weights"].to_dense() for tables in (old, new)]
    assert np.array_equal(first_order[1][growth.new_rows()], first_order[0][growth.unknown_rows()])


def test_zeros_for_new_features_are_zeros_in_every_table(bundle, tmp_path):
    larger = open_bundle(extend_bundle(bundle, tmp_path / "new", encoder(*LARGER), "zeros"))
    for table in larger.tables.values():
        assert not table.to_dense()[Growth((3, 2), (4, 4)).new_rows()].any()


def test_a_table_of_which_nothing_was_pruned_stays_whole(bundle, tmp_path):
    larger = open_bundle(extend_bundle(bundle, tmp_path / "new", encoder(*LARGER), "zeros"))
    assert larger.tables["linear_term.weights"].num_parameters == 8
    assert to_trainable(larger).linear_term.weights.weight.shape == (8, 1)


def test_pruned_first_order_weights_do_not_grow_again(bundle, tmp_path):
    opened = open_bundle(bundle)
    sizes, mask = opened.encoder.schema.field_sizes, torch.tensor([[1], [0], [0], [1], [0]], dtype=torch.bool)
    model = to_trainable(opened)
    model.linear_term.weights = CompactEmbedding.from_mask(sizes, mask, torch.randn(5, 1))
    pruned = open_bundle(save_bundle(tmp_path / "pruned", model.eval(), model_config("deepfm"), opened.encoder))
    model, ids = to_trainable(pruned).eval(), torch.tensor([[0, 3], [1, 4], [2, 3]])
    assert torch.equal(model.linear_term.weights.positions(), torch.tensor([0, 3]))
    torch.testing.assert_close(model(ids).detach(), pruned.model(ids))
    model(ids).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
    assert not torch.equal(model(ids).detach(), pruned.model(ids))  # the bundle's model is another one
    assert load_bundle(tmp_path / "pruned").bundle.num_parameters == pruned.num_parameters


@pytest.mark.parametrize("method", ["hash", "mgqe", "mde"])
def test_tables_of_methods_with_parts_of_their_own_do_not_train_on(tmp_path, method):
    before = encoder([str(number) for number in range(40)], ["x"])
    sizes = before.schema.field_sizes
    table = build_embedding(sizes, embedding_config(method), feature_counts=list(range(sum(sizes))))
    model = build_model(table, model_config("fm")).eval()
    bundle = open_bundle(save_bundle(tmp_path / "bundle", model, model_config("fm"), before))
    with pytest.raises(FormatError, match=r"table 'embedding' is stored as its method's own form.* train"):
        to_trainable(bundle)


def test_vocabularies_that_do_not_begin_with_the_old_ones_are_refused(bundle, tmp_path):
    with pytest.raises(FormatError, match="do not begin"):
        extend_bundle(bundle, tmp_path / "new", encoder(["b", "a", "c"], ["x"]))
    assert not (tmp_path / "new").exists()
