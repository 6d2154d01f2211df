"""export_fbgemm(): tables for FBGEMM's `IntNBitTableBatchedEmbeddingBagsCodegen`, with `index_remapping`.

    <folder>/tables.safetensors    <table>.rows, <table>.scale_shift (8 and 4 bits), <table>.index_remapping
    <folder>/network.safetensors   the other weights
    <folder>/fbgemm.json           rows, width and type of each table

Rows are pruned, not entries: a row that keeps one entry is stored whole, and each feature has four bytes in the map.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from thresher._internal.extras import import_fbgemm
from thresher._internal.storage.documents import check_regular, damaged_file
from thresher._internal.storage.files import atomic_folder, read_json, write_json
from thresher.compact.table import CompactTable
from thresher.embeddings.base import FieldEmbedding
from thresher.errors import FormatError
from thresher.serving.bundle import Bundle
from thresher.serving.exports.export import NETWORK, check_no_placeholder, compact_tables, opened
from thresher.serving.exports.torch_quantized import kept_rows

RowType = Literal["fp32", "fp16", "int8", "int4"]
BITS = {"int8": 8, "int4": 4}
SETTINGS, TABLES = "fbgemm.json", "tables.safetensors"


def make_engine(rows: int, embedding_dim: int, row_type: str, index_remapping: Tensor) -> Any:
    """FBGEMM's module for one table on the CPU, with uninitialized rows; ids `[n]` without pooling."""
    inference, common, sparse_type = import_fbgemm()
    engine = inference.IntNBitTableBatchedEmbeddingBagsCodegen(
        [("table", rows, embedding_dim, sparse_type(row_type), common.EmbeddingLocation.HOST)],
        device="cpu",
        pooling_mode=common.PoolingMode.NONE,
        index_remapping=[index_remapping],
        output_dtype=sparse_type("fp32"),
    )
    engine.initialize_weights()
    return engine


def fill_engine(engine: Any, rows: Tensor, scale_shift: Tensor | None) -> Any:
    """Copy rows, uint8, and their scales into a module of one table; returns it."""
    ((place, scales),) = engine.split_embedding_weights(split_scale_shifts=True)
    place.copy_(rows)
    if scale_shift is not None:
        scales.copy_(scale_shift)
    return engine


def encode_rows(table: CompactTable, row_type: RowType) -> dict[str, Tensor]:
    """A table as `rows`, uint8 `[kept rows, bytes]`, `index_remapping`, int32 `[N]`, and `scale_shift`, uint8.

    FBGEMM cannot quantize rows of an odd number of bytes; such rows, first-order weights among them, are kept in fp32.
    """
    check_no_placeholder(table, "FBGEMM's rows")
    rows, mapping = kept_rows(table)
    found = {"index_remapping": mapping}
    if stored_type(table.embedding_dim, row_type) == "fp32":
        return {"rows": rows.view(torch.uint8), **found}
    if row_type == "fp16":
        return {"rows": rows.half().view(torch.uint8), **found}
    import_fbgemm()
    fused = torch.ops.fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf(rows, BITS[row_type])
    return {"rows": fused[:, :-4].contiguous(), "scale_shift": fused[:, -4:].contiguous(), **found}


def stored_type(embedding_dim: int, row_type: RowType) -> RowType:
    """The type in which rows of a width can be stored."""
    return "fp32" if row_type in BITS and embedding_dim * BITS[row_type] % 16 else row_type


class FbgemmEmbedding(FieldEmbedding):
    """Ids `[...]` → vectors `[..., D]` by FBGEMM; frozen, on the CPU."""

    def __init__(self, field_sizes: tuple[int, ...], table: CompactTable, row_type: RowType = "int8") -> None:
        super().__init__(field_sizes, table.embedding_dim)
        self.num_kept = table.num_parameters
        parts = encode_rows(table, row_type)
        self._bytes = sum(part.nbytes for part in parts.values())
        rows, mapping = parts["rows"], parts["index_remapping"]
        engine = make_engine(len(rows), self.embedding_dim, stored_type(self.embedding_dim, row_type), mapping)
        self.engine = fill_engine(engine, rows, parts.get("scale_shift"))

    def forward(self, ids: Tensor) -> Tensor:
        flat = ids.reshape(-1).int()
        vectors: Tensor = self.engine(flat, torch.tensor([0, len(flat)], dtype=torch.int32))
        return vectors.reshape(*ids.shape, self.embedding_dim)

    def num_parameters(self) -> int:
        return self.num_kept

    def storage_bytes(self) -> int:
        return self._bytes


def export_fbgemm(bundle: Bundle | str | Path, folder: str | Path, *, row_type: RowType = "int8") -> Path:
    """Write the tables of a bundle as rows of FBGEMM, and its other weights. Needs fbgemm-gpu-cpu or fbgemm-gpu."""
    bundle, folder = opened(bundle), Path(folder)
    tensors: dict[str, Tensor] = {}
    settings: dict[str, Any] = {}
    for name, table in compact_tables(bundle).items():
        parts = encode_rows(table, row_type)
        tensors |= {f"{name}.{part}": tensor for part, tensor in parts.items()}
        settings[name] = {
            "num_features": table.num_features,
            "rows": len(parts["rows"]),
            "embedding_dim": table.embedding_dim,
            "row_type": stored_type(table.embedding_dim, row_type),
        }
    with atomic_folder(folder) as temporary:
        write_json(temporary / SETTINGS, {"tables": settings})
        save_file(tensors, temporary / TABLES)
        shutil.copy(bundle.folder / NETWORK, temporary)
    return folder


def load_fbgemm(folder: str | Path) -> Mapping[str, Any]:
    """FBGEMM's module for each table that `export_fbgemm` wrote: `module(ids, offsets)`, without pooling."""
    folder = Path(folder)
    if not fbgemm_file_names(folder):
        raise FormatError(f"{folder}: no {SETTINGS}. Name a folder that export_fbgemm wrote.")
    settings, modules = read_json(folder / SETTINGS), {}
    check_regular(folder / TABLES)
    with damaged_file(str(folder), "Export it again."):
        tensors = load_file(folder / TABLES)
        for name, about in settings["tables"].items():
            mapping, rows = tensors[f"{name}.index_remapping"], tensors[f"{name}.rows"]
            if len(rows) != about["rows"] or mapping.dtype != torch.int32 or int(mapping.max()) >= len(rows):
                raise ValueError(f"the index of {name!r} does not fit its rows")  # FBGEMM would read outside of them
            engine = make_engine(about["rows"], about["embedding_dim"], about["row_type"], mapping)
            modules[name] = fill_engine(engine, rows, tensors.get(f"{name}.scale_shift"))
    return modules


def fbgemm_file_names(folder: Path) -> set[str]:
    """Names of the files that `export_fbgemm` wrote into a folder; empty if there are none."""
    return {SETTINGS, TABLES, NETWORK} if (folder / SETTINGS).is_file() else set()
