"""Bytes of every part of a bundle of Criteo's size, for three ways to treat first-order weights.

python benchmarks/memory/bundle_parts.py [--kept 1067] [--own 10000]

Features and their counts are generated (Zipf): sizes depend on how many features keep something, not on what they mean.
The AUC of these choices is measured by `benchmarks/memory/first_order.py` on a real run.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import torch

from thresher.compact.embedding import CompactEmbedding
from thresher.compact.method_table import StoredEmbedding
from thresher.compact.table import CompactTable
from thresher.compact.traceable import TraceableEmbedding
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.data.schema import Field, Label, Schema
from thresher.models.model_registry import build_model, model_config
from thresher.serving.bundle import open_bundle, save_bundle
from thresher.serving.exports.torch_quantized import RowwiseEmbedding
from thresher.serving.first_order import FIRST_ORDER, share_first_order_

NUM_FEATURES, NUM_FIELDS, EMBEDDING_DIM = 1_086_810, 39, 64


def make_encoder() -> tuple[RowEncoder, np.ndarray]:
    """39 fields: 13 of buckets, 26 of hashes of 8 hexadecimal digits; counts fall by rank."""
    shares = np.concatenate([np.full(13, 4e-5), np.geomspace(1e-5, 0.25, 26)])
    sizes = np.maximum((shares / shares.sum() * NUM_FEATURES).astype(int), 3)
    sizes[-1] += NUM_FEATURES - sizes.sum()
    random = np.random.default_rng(0)
    fields, vocabularies, counts = [], [], []
    for at, size in enumerate(sizes.tolist()):
        hashes = np.unique(random.integers(0, 2**32, size + size // 100 + 10))
        texts = [str(k) for k in range(size - 1)] if at < 13 else [f"{k:08x}" for k in hashes[: size - 1].tolist()]
        own = np.maximum(4e7 / np.arange(1, size) / np.log(size + 2), 10).astype(np.int64)
        fields.append(Field(name=f"f{at}", size=size, transform="log2" if at < 13 else "none"))
        vocabularies.append(
            Vocabulary(pl.Series("value", random.permutation(texts).astype(object).tolist(), dtype=pl.String), own)
        )
        counts.append(np.concatenate([[own.sum() // 20], own]))
    return RowEncoder(Schema(fields=tuple(fields), label=Label(column="y")), vocabularies), np.concatenate(counts)


def parts(folder: Path) -> dict[str, int]:
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    return {**sizes, "total": sum(sizes.values())}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kept", type=int, default=1067, help="entries kept: the paper's PEP-0")
    parser.add_argument("--own", type=int, default=10_000, help="first-order weights kept")
    options = parser.parse_args()
    torch.manual_seed(0)
    encoder, counts = make_encoder()
    sizes = encoder.schema.field_sizes
    frequent = np.argsort(-counts, kind="stable")[: max(options.kept // 4, 1)]
    random = np.random.default_rng(1)
    positions = np.unique(
        random.choice(frequent, options.kept * 2) * EMBEDDING_DIM + random.integers(0, 64, options.kept * 2)
    )
    positions = np.sort(random.permutation(positions)[: options.kept])
    embedding = CompactEmbedding(sizes, EMBEDDING_DIM, torch.from_numpy(positions), torch.randn(len(positions)))
    model, config = build_model(embedding, model_config("fm")), model_config("fm")
    with torch.no_grad():
        model.get_parameter(f"{FIRST_ORDER}.weight").normal_()
    results: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        encoder.save(Path(scratch) / "parquet")
        results["parquet vocabularies"] = parts(Path(scratch) / "parquet")
        folder = save_bundle(Path(scratch) / "all", model, config, encoder)
        results["all first-order weights"] = parts(folder)
        bundle = open_bundle(folder)
        shared = share_first_order_(bundle.model, bundle.tables, encoder.schema, counts, options.own)
        rounded = shared[FIRST_ORDER].to_value_type("int8")
        bundle.model.set_submodule(FIRST_ORDER, StoredEmbedding(sizes, rounded))
        folder = save_bundle(Path(scratch) / "own", bundle.model, config, encoder, searched=bundle.searched)
        results[f"{options.own} own first-order weights, int8"] = parts(folder)
        table = bundle.tables["embedding"]
        assert isinstance(table, CompactTable)
        results["table"] = {
            "compact": table.storage_bytes,
            "ONNX operations": TraceableEmbedding(sizes, table).storage_bytes(),
            "torch rowwise int8, pruned rows": RowwiseEmbedding(sizes, table, "int8").storage_bytes(),
            "torch rowwise int4, pruned rows": RowwiseEmbedding(sizes, table, "int4").storage_bytes(),
            "compact int8": table.to_value_type("int8").storage_bytes,
            "dense float32": 4 * NUM_FEATURES * EMBEDDING_DIM,
        }
    for name, sizes_of in results.items():
        print(name)
        for part, size in sizes_of.items():
            print(f"  {part:50} {size:>12,}")
    print(json.dumps({name: sizes_of.get("total", sizes_of) for name, sizes_of in results.items()}))


if __name__ == "__main__":
    main()
