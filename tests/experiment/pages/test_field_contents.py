"""Fields of a model: shuffled inputs cost AUC where they matter, and kept features have their names."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from thresher.compact.table import CompactTable
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.table import Bag
from thresher.embeddings.uniform import UniformConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.pages.field_contents import _take_bag, auc_drops, field_contents
from thresher.experiment.run.run_models import new_model
from thresher.serving.bundle import open_bundle, save_bundle


@pytest.fixture(scope="module")
def bundle(small_table, tmp_path_factory):
    """An FM whose first-order weights are the click rates of field 0; field 1 keeps three features."""
    config = RunConfig()
    model = new_model(config, small_table, UniformConfig(embedding_dim=4))
    train = small_table.split("train")
    weight = torch.zeros(small_table.schema.num_features, 4)
    first = small_table.schema.field_offsets[1]
    weight[first + 1 : first + 4, :2] = 0.01
    with torch.no_grad():
        model.embedding.weight.copy_(weight)
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding) and module.embedding_dim == 1:
                module.weight.zero_()
                for feature in np.unique(train.ids[:, 0]):
                    module.weight[feature] = float(train.labels[train.ids[:, 0] == feature].mean())
    folder = tmp_path_factory.mktemp("bundle") / "bundle"
    return open_bundle(save_bundle(folder, model, config.model, RowEncoder.load(small_table.folder)))


def test_only_the_field_that_is_used_contributes(bundle, small_table):
    drops = auc_drops(bundle, small_table.split("validation"))
    names = [field.name for field in small_table.schema.fields]
    assert drops[names[0]][0] > 0.02
    assert all(abs(drops[name][0]) < 0.005 for name in names[1:])
    assert drops[names[3]] == pytest.approx((0.0, 0.0), abs=1e-3)


def test_rows_of_one_class_have_no_auc(bundle, small_table):
    split = small_table.split("validation")
    assert auc_drops(bundle, replace(split, labels=np.ones_like(split.labels))) == {}


def test_kept_and_dropped_features_have_their_names(bundle, small_table):
    weight = bundle.tables["embedding"].to_dense()
    bundle = replace(bundle, tables={**bundle.tables, "embedding": CompactTable.from_mask(weight != 0, weight)})
    rows = {row["field"]: row for row in field_contents(bundle, small_table)}
    name = small_table.schema.fields[1].name
    vocabulary = RowEncoder.load(small_table.folder).full_vocabularies[1].values
    assert rows[name]["num_kept"] == 3
    assert {text for text, _ in rows[name]["heaviest"]} == {str(value) for value in vocabulary[:3]}
    assert [size for _, size in rows[name]["heaviest"]] == [2, 2, 2]
    assert rows[name]["dropped"][0][0] == str(vocabulary[3])  # the vocabulary is in the order of the counts
    assert rows[name]["entry_share"] == 1.0


def test_rows_of_a_bag_keep_their_values():
    bag = Bag(0, np.array([1, 2, 3, 4, 5, 6], np.int32), np.array([0, 2, 2, 6]), "mean")
    taken = _take_bag(bag, np.array([2, 1, 0, 0]))
    assert taken.values.tolist() == [3, 4, 5, 6, 1, 2, 1, 2]
    assert taken.offsets.tolist() == [0, 4, 4, 6, 8]
