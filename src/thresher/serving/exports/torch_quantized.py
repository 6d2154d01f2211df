"""export_quantized(): ids → probabilities with PyTorch's own pruned and quantized rows, as a `.pt2` file.

Tables are rows of 8 or 4 bits with a scale and an offset each (`torch.ops.quantized.embedding_bag_*_rowwise_offsets`
with `pruned_weights`); empty rows are removed, and `compressed_indices_mapping` has one int32 per feature. Rows are
pruned, not entries: a row that keeps one entry is stored whole. Loading it needs stock PyTorch, on a CPU.
"""

import warnings
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from thresher._internal.storage.files import atomic_file
from thresher.compact.table import CompactTable
from thresher.embeddings.base import FieldEmbedding
from thresher.errors import FormatError
from thresher.serving.bundle import Bundle
from thresher.serving.exports.export import (
    check_no_placeholder,
    check_traceable,
    example_inputs,
    opened,
    probability_model,
)

RowType = Literal["int8", "int4"]


class RowwiseEmbedding(FieldEmbedding):
    """Ids `[...]` → vectors `[..., D]` from quantized rows without the empty ones; frozen."""

    packed: Tensor  # uint8 [kept rows, bytes of a row]
    mapping: Tensor  # int32 [N]: the kept row of each feature, −1 for a dropped one

    def __init__(self, field_sizes: tuple[int, ...], table: CompactTable, row_type: RowType = "int8") -> None:
        super().__init__(field_sizes, table.embedding_dim)
        check_no_placeholder(table, "PyTorch's quantized rows")
        self.num_kept, self.row_type = table.num_parameters, row_type
        rows, mapping = kept_rows(table)
        prepack = {
            "int8": torch.ops.quantized.embedding_bag_byte_prepack,
            "int4": torch.ops.quantized.embedding_bag_4bit_prepack,
        }[row_type]
        self.register_buffer("packed", prepack(rows))
        self.register_buffer("mapping", mapping)

    def forward(self, ids: Tensor) -> Tensor:
        flat = ids.reshape(-1).int()
        offsets = torch.arange(flat.shape[0] + 1, dtype=torch.int32, device=flat.device)
        operator = (
            torch.ops.quantized.embedding_bag_byte_rowwise_offsets
            if self.row_type == "int8"
            else torch.ops.quantized.embedding_bag_4bit_rowwise_offsets
        )
        vectors: Tensor = operator(
            self.packed,
            flat,
            offsets,
            mode=0,
            pruned_weights=True,
            compressed_indices_mapping=self.mapping,
            include_last_offset=True,
        )
        return vectors[:, : self.embedding_dim].reshape(*ids.shape, self.embedding_dim)

    def num_parameters(self) -> int:
        return self.num_kept

    def storage_bytes(self) -> int:
        return self.packed.nbytes + self.mapping.nbytes


def kept_rows(table: CompactTable) -> tuple[Tensor, Tensor]:
    """The rows that keep an entry, float32 `[kept rows, D]`, and the row of each feature, int32 `[N]`, −1 for none."""
    kept = np.flatnonzero(table.sizes())
    rows = np.zeros((max(len(kept), 1), table.embedding_dim), np.float32)
    if len(kept):
        rows[:] = table.lookup(kept)
    mapping = np.full(table.num_features, -1, np.int32)
    mapping[kept] = np.arange(len(kept))
    return torch.from_numpy(rows), torch.from_numpy(mapping)


def export_quantized(bundle: Bundle | str | Path, path: str | Path, *, row_type: RowType = "int8") -> Path:
    """Write ids → probabilities with quantized rows: `torch.export.load(path).module()(ids)`."""
    bundle, path = opened(bundle), Path(path)
    check_traceable(bundle)
    if path.suffix != ".pt2":
        raise FormatError(f"{path}: the name of an exported program must end in .pt2")
    sizes = bundle.encoder.schema.field_sizes
    model = probability_model(bundle, lambda table: RowwiseEmbedding(sizes, table, row_type))
    inputs, shapes = example_inputs(bundle)
    with warnings.catch_warnings(), torch.no_grad(), atomic_file(path) as temporary:
        warnings.simplefilter("ignore")  # about torch internals
        program = torch.export.export(model, inputs, dynamic_shapes=shapes)
        torch.export.save(program, temporary)
    return path
