"""Bundles extended for new ids predict as before, and can be trained further."""

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn

from thresher.attach.extend import Growth
from thresher.compact.embedding import CompactEmbedding
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.data.schema import Field, Label, Schema
from thresher.embeddings.method_registry import build_embedding, embedding_config
from thresher.errors import FormatError
from thresher.models.model_registry import build_model, model_config
from thresher.serving.bundle import open_bundle, save_bundle
from thresher.serving.change_bundle import extend_bundle, to_trainable
from thresher.serving.predictor import load_bundle


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
    metadata = {
        "budget": "12",
        "num_parameters": embedding.num_parameters(),
        "storage_bytes": embedding.storage_bytes(),
    }
    return save_bundle(tmp_path / "old", model, model_config("deepfm"), before, metadata=metadata)


ROWS = pl.DataFrame({"f0": ["a", "b", "c", "other"], "f1": ["x", "y", "x", "z"]})
LARGER = (["a", "b", "c"], ["x", "y", "z"])


def test_an_extended_bundle_predicts_as_before_and_can_be_refreshed(bundle, tmp_path):
    before = load_bundle(bundle).predict(ROWS)
    larger = extend_bundle(bundle, tmp_path / "new", encoder(*LARGER))
    predictor = load_bundle(larger)
    assert predictor.schema.field_sizes == (4, 4)
    np.testing.assert_allclose(predictor.predict(ROWS), before, rtol=1e-6)
    assert predictor.bundle.metadata["budget"] == "12"
    assert predictor.bundle.metadata["num_parameters"] == predictor.bundle.num_parameters
    assert predictor.bundle.metadata["storage_bytes"] == predictor.bundle.searched_bytes
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


def test_given_rows_are_for_the_embedding_and_other_tables_copy_their_unknown_feature(bundle, tmp_path):
    growth, rows, old = Growth((3, 2), (4, 4)), torch.randn(3, 4), open_bundle(bundle).tables
    new = open_bundle(extend_bundle(bundle, tmp_path / "new", encoder(*LARGER), rows)).tables
    assert np.array_equal(new["embedding"].to_dense()[growth.new_rows()], rows.numpy())
    first_order = [tables["linear_term.weights"].to_dense() for tables in (old, new)]
    assert np.array_equal(first_order[1][growth.new_rows()], first_order[0][growth.unknown_rows()])


def test_zeros_for_new_features_are_zeros_in_every_table(bundle, tmp_path):
    larger = open_bundle(extend_bundle(bundle, tmp_path / "new", encoder(*LARGER), "zeros"))
    for table in larger.tables.values():
        assert not table.to_dense()[Growth((3, 2), (4, 4)).new_rows()].any()


def test_an_unpruned_table_stays_unpruned(bundle, tmp_path):
    larger = open_bundle(extend_bundle(bundle, tmp_path / "new", encoder(*LARGER), "zeros"))
    assert larger.tables["linear_term.weights"].num_parameters == 8
    assert to_trainable(larger).linear_term.weights.weight.shape == (8, 1)


def test_pruned_first_order_weights_stay_pruned(bundle, tmp_path):
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
    assert not torch.equal(model(ids).detach(), pruned.model(ids))  # the bundle's model was copied
    assert load_bundle(tmp_path / "pruned").bundle.num_parameters == pruned.num_parameters


@pytest.mark.parametrize("method", ["hash", "mgqe", "mde"])
def test_tables_stored_in_the_form_of_their_method_cannot_be_trained(tmp_path, method):
    before = encoder([str(number) for number in range(40)], ["x"])
    sizes = before.schema.field_sizes
    table = build_embedding(sizes, embedding_config(method), feature_counts=list(range(sum(sizes))))
    model = build_model(table, model_config("fm")).eval()
    bundle = open_bundle(save_bundle(tmp_path / "bundle", model, model_config("fm"), before))
    with pytest.raises(FormatError, match=r"table 'embedding' is stored in the form of its method.*Train a new model"):
        to_trainable(bundle)


def test_vocabularies_must_begin_with_the_old_ones(bundle, tmp_path):
    with pytest.raises(FormatError, match="do not begin"):
        extend_bundle(bundle, tmp_path / "new", encoder(["b", "a", "c"], ["x"]))
    assert not (tmp_path / "new").exists()
