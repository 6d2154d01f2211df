"""Write sample files of the current formats, after deleting those of an older version by hand.

python tests/formats/make_samples.py
"""

import json
from pathlib import Path

import numpy as np
import polars as pl
import torch

from thresher.compact.embedding import CompactEmbedding
from thresher.compact.file import VERSION as TABLE_VERSION
from thresher.compact.table import CompactTable
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.data.schema import DenseColumn, Field, Label, Schema
from thresher.models.model_registry import build_model, model_config
from thresher.serving.bundle import save_bundle
from thresher.serving.manifest import VERSION as BUNDLE_VERSION
from thresher.serving.predictor import load_bundle

HERE = Path(__file__).parent


def tables() -> dict[str, CompactTable]:
    generator = np.random.default_rng(0)
    sparse = generator.random((600, 40)) < 0.03
    medium = generator.random((60, 40)) < 0.3
    medium[::3] = True
    medium[:, 7] = False
    full = np.ones((20, 40), bool)

    def weights(mask: np.ndarray) -> np.ndarray:
        return generator.standard_normal(mask.shape).astype(np.float32)

    few = np.zeros((70_000, 8), bool)
    few[generator.integers(0, 70_000, 30), 3] = True
    return {
        "bitmap-columns-fp32": CompactTable.from_mask(sparse, weights(sparse)),
        "full-rows-dropped-column-int8": CompactTable.from_mask(medium, weights(medium), value_type="int8"),
        "full-fp16": CompactTable.from_mask(full, weights(full), value_type="fp16"),
        "masks-bf16": CompactTable.from_mask(medium[1::3], weights(medium[1::3]), value_type="bf16"),
        "list-int4": CompactTable.from_mask(few, weights(few), value_type="int4"),
    }


def make_bundle(folder: Path) -> None:
    values = (["Köln", "Ulm", ""], [str(number) for number in range(20)])
    vocabularies = [Vocabulary(pl.Series("value", v), np.arange(len(v), 0, -1)) for v in values]
    fields = tuple(Field(name=n, size=len(v) + 1) for n, v in zip(("city", "age"), values, strict=True))
    schema = Schema(fields=fields, label=Label(column="clicked"), dense=(DenseColumn(name="x", mean=1.0, scale=2.0),))
    torch.manual_seed(0)
    mask = torch.rand(schema.num_features, 8) < 0.3
    config = model_config("deepfm")
    embedding = CompactEmbedding.from_mask(schema.field_sizes, mask, torch.randn(mask.shape))
    model = build_model(embedding, config, num_dense=1).eval()
    save_bundle(folder, model, config, RowEncoder(schema, vocabularies), metadata={"budget": "40"})


def main() -> None:
    for name, table in tables().items():
        stem = HERE / f"compact-table-v{TABLE_VERSION}-{name}"
        table.save(stem.with_suffix(".safetensors"))
        positions, values = table.entries()
        expected = {"shape": table.shape, "positions": positions.tolist(), "values": values.tolist()}
        stem.with_suffix(".json").write_text(json.dumps(expected) + "\n")
    folder = HERE / f"bundle-v{BUNDLE_VERSION}"
    make_bundle(folder)
    rows = [
        {"city": "Köln", "age": 3, "x": 0.5},
        {"city": None, "age": 99, "x": None},
        {"city": "Ulm", "age": 0, "x": 2},
    ]
    answers = load_bundle(folder).predict(rows).tolist()
    (HERE / f"bundle-v{BUNDLE_VERSION}.json").write_text(json.dumps({"rows": rows, "probabilities": answers}) + "\n")


if __name__ == "__main__":
    main()
