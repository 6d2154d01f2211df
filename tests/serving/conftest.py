import numpy as np
import polars as pl
import pytest
import torch

from thresher.compact.embedding import CompactEmbedding
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.data.schema import DenseColumn, Field, FileFormat, Label, Schema
from thresher.models.model_registry import build_model, model_config


@pytest.fixture(scope="session")
def make_encoder():
    """An encoder of three fields and `num_dense` dense columns."""

    def make(num_dense=0):
        values = (["Köln", "Ulm", "Bonn", ""], [str(number) for number in range(30)], ["a", "b"])
        vocabularies = [Vocabulary(pl.Series("value", v), np.arange(len(v), 0, -1)) for v in values]
        names = ("city", "age", "kind")
        schema = Schema(
            fields=tuple(Field(name=name, size=len(v) + 1) for name, v in zip(names, values, strict=True)),
            label=Label(column="clicked"),
            dense=tuple(DenseColumn(name=f"x{at}", mean=1.0, scale=2.0) for at in range(num_dense)),
            file_format=FileFormat(columns=("clicked", *names, *(f"x{at}" for at in range(num_dense)))),
        )
        return RowEncoder(schema, vocabularies)

    return make


@pytest.fixture(scope="session")
def make_model():
    """A model over a randomly pruned table, with random weights and batch norm statistics."""

    def make(encoder, name="fm", density=0.3, embedding_dim=8):
        torch.manual_seed(0)
        schema = encoder.schema
        mask = torch.rand(schema.num_features, embedding_dim) < density
        embedding = CompactEmbedding.from_mask(schema.field_sizes, mask, torch.randn(mask.shape))
        config = model_config(name)
        model = build_model(embedding, config, num_dense=schema.num_dense)
        model.train()
        ids = torch.stack([torch.randint(size, (64,)) for size in schema.field_sizes], 1)
        ids = ids + torch.tensor(schema.field_offsets)
        with torch.no_grad():
            for parameter in model.other_parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
            model(ids, torch.randn(64, schema.num_dense)) if schema.num_dense else model(ids)
        return model.eval(), config

    return make


@pytest.fixture(scope="session")
def raw_frame():
    """Raw rows with unknown values, missing values and an extra column."""

    def make(num_rows=50, num_dense=0):
        generator = np.random.default_rng(0)
        frame = pl.DataFrame(
            {
                "extra": np.arange(num_rows),
                "city": generator.choice(["Köln", "Ulm", "Bonn", "Nowhere", None], num_rows).tolist(),
                "age": generator.integers(0, 40, num_rows),
                "kind": generator.choice(["a", "b", "c"], num_rows).tolist(),
            }
        )
        return frame.with_columns(pl.Series(f"x{at}", generator.standard_normal(num_rows)) for at in range(num_dense))

    return make
