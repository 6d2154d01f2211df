"""Bytes of every part of a bundle of Criteo's size, and of its table in the forms of other engines.

python benchmarks/memory/bundle_parts.py [--kept 1067 695558] [--own 10000] [--out benchmarks/results/bundle_parts.json]

Features and their counts are generated (Zipf): sizes depend on how many features keep something, not on what they mean.
The AUC of these choices is measured by `benchmarks/memory/first_order.py` on real runs. Needs fbgemm-gpu-cpu.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from environment import run_environment
from thresher._internal.storage.files import write_json
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.method_table import StoredEmbedding
from thresher.compact.table import CompactTable
from thresher.compact.traceable import TraceableEmbedding
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.data.schema import Field, Label, Schema
from thresher.models.model_registry import build_model, model_config
from thresher.serving.bundle import Bundle, open_bundle, save_bundle
from thresher.serving.exports.fbgemm import FbgemmEmbedding
from thresher.serving.exports.torch_quantized import RowwiseEmbedding
from thresher.serving.first_order import FIRST_ORDER, share_first_order_

NUM_FEATURES, EMBEDDING_DIM = 1_086_810, 64
RESULT = Path(__file__).parent.parent / "results" / "bundle_parts.json"


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


def make_bundle(folder: Path, num_kept: int, encoder: RowEncoder, counts: np.ndarray) -> Bundle:
    """An FM whose kept entries are those of the most frequent features, with random values."""
    sizes, random = encoder.schema.field_sizes, np.random.default_rng(1)
    frequent = np.argsort(-counts, kind="stable")[: max(num_kept // 4, 1)]
    drawn = random.choice(frequent, num_kept * 2) * EMBEDDING_DIM + random.integers(0, EMBEDDING_DIM, num_kept * 2)
    positions = np.sort(random.permutation(np.unique(drawn))[:num_kept])
    embedding = CompactEmbedding(sizes, EMBEDDING_DIM, torch.from_numpy(positions), torch.randn(len(positions)))
    config = model_config("fm")
    model = build_model(embedding, config)
    with torch.no_grad():
        model.get_parameter(f"{FIRST_ORDER}.weight").normal_()
    return open_bundle(save_bundle(folder, model, config, encoder))


def measure(num_kept: int, num_own: int, encoder: RowEncoder, counts: np.ndarray) -> dict[str, dict[str, int]]:
    """Bytes of the bundle's parts with all and with few first-order weights, and of the table in other forms."""
    sizes = encoder.schema.field_sizes
    with tempfile.TemporaryDirectory() as scratch:
        bundle = make_bundle(Path(scratch) / "all", num_kept, encoder, counts)
        found = {"all first-order weights, float32": parts(bundle.folder)}
        table = bundle.tables["embedding"]
        assert isinstance(table, CompactTable)
        shared = share_first_order_(bundle.model, bundle.tables, encoder.schema, counts, num_own)
        bundle.model.set_submodule(FIRST_ORDER, StoredEmbedding(sizes, shared[FIRST_ORDER].to_value_type("int8")))
        few = save_bundle(Path(scratch) / "few", bundle.model, bundle.model_config, encoder, searched=bundle.searched)
        found[f"{num_own} first-order weights of their own, int8"] = parts(few)
    rows = {
        f"FBGEMM rows, {row_type}": FbgemmEmbedding(sizes, table, row_type).storage_bytes()
        for row_type in ("int8", "int4")
    }
    torch_rows = {
        f"PyTorch's quantized rows, {row_type}": RowwiseEmbedding(sizes, table, row_type).storage_bytes()
        for row_type in ("int8", "int4")
    }
    found["table"] = {
        "compact, float32": table.storage_bytes,
        "compact, int8": table.to_value_type("int8").storage_bytes,
        "ONNX operations": TraceableEmbedding(sizes, table).storage_bytes(),
        **torch_rows,
        **rows,
        "dense, float32": 4 * NUM_FEATURES * EMBEDDING_DIM,
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kept", type=int, nargs="+", default=[1067, 695_558], help="entries kept: PEP-0, and 1 %%")
    parser.add_argument("--own", type=int, default=10_000, help="first-order weights kept")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.manual_seed(0)
    encoder, counts = make_encoder()
    with tempfile.TemporaryDirectory() as scratch:
        encoder.save(Path(scratch))
        vocabularies = parts(Path(scratch))["total"]
    results = {str(num_kept): measure(num_kept, options.own, encoder, counts) for num_kept in options.kept}
    content = {"parquet_vocabularies": vocabularies, "kept": results, "made_with": run_environment()}
    write_json(options.out, content)
    for num_kept, found in results.items():
        for name, sizes in found.items():
            print(f"{num_kept} entries: {name}")
            for part, size in sizes.items():
                print(f"  {part:50} {size:>12,}")


if __name__ == "__main__":
    main()
