"""Trainable embeddings whose parameters are the kept values; `to_table` returns the `CompactTable` that is stored."""

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.compact.encoding import MAX_CODE, Quantized, encode_positions, quantize
from thresher.compact.layouts import SCALE_BLOCK, ValueType, is_quantized
from thresher.compact.table import CompactTable, check_entries, to_numpy
from thresher.embeddings.base import RowEmbedding
from thresher.embeddings.computed_weight import computed_weight
from thresher.errors import ConfigError
from thresher.kernels.distinct import DistinctIds, find_distinct
from thresher.kernels.rows import compact_lookup


class CompactEmbedding(RowEmbedding):
    """Ids `[...]` → vectors `[..., D]` whose kept entries are the parameter `values` `[K]`, row after row.

    Dense Adam over `values` takes the same steps as masked dense retraining, at a cost proportional to `K`.

    >>> import torch
    >>> mask = torch.tensor([[True, False], [False, False], [True, True]])
    >>> embedding = CompactEmbedding.from_mask([3], mask, torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    >>> embedding.num_parameters(), embedding(torch.tensor([2, 1])).tolist()
    (3, [[5.0, 6.0], [0.0, 0.0]])
    """

    field_starts: Tensor  # [F], with a placeholder
    row_starts: Tensor  # int32 [N + 1], int64 from 2³¹ entries on
    columns: Tensor  # uint8 [K], int32 for more than 256 columns
    placeholder: Tensor | None  # [F, D]: what pruned entries read as, one vector per field; None: 0
    scale_grad_by_freq: bool = False  # as in `nn.Embedding`

    def __init__(
        self,
        field_sizes: Sequence[int],
        embedding_dim: int,
        positions: Tensor,
        values: Tensor,
        placeholder: Tensor | None = None,
    ) -> None:
        """From the kept entries: flat positions `row · D + column` `[K]`, ascending, and their values `[K]`.

        With a placeholder `[F, D]`, the values are differences from the vector of their field.
        """
        super().__init__(field_sizes, embedding_dim)
        check_entries((self.num_features, embedding_dim), to_numpy(positions), tuple(values.shape))
        rows = positions // embedding_dim
        starts = torch.searchsorted(rows, torch.arange(self.num_features + 1, device=rows.device))
        columns = positions - rows * embedding_dim
        self.values = nn.Parameter(values.detach().clone())
        self.register_buffer("row_starts", starts.to(torch.int32 if len(positions) < 2**31 else torch.int64))
        self.register_buffer("columns", columns.to(torch.uint8 if embedding_dim <= 256 else torch.int32))
        self.register_buffer("placeholder", None)
        self.set_placeholder_(placeholder)

    def set_placeholder_(self, placeholder: Tensor | None) -> None:
        """Add a vector per field `[F, D]` to every row of the field."""
        if placeholder is None:
            return
        if placeholder.shape != (self.num_fields, self.embedding_dim):
            expected = f"[{self.num_fields}, {self.embedding_dim}]"
            raise ValueError(f"placeholder has shape {list(placeholder.shape)}: expected {expected}.")
        starts = torch.tensor([0, *self.field_sizes[:-1]]).cumsum(0).to(self.columns.device)
        self.placeholder = placeholder.detach().to(self.values).clone()
        self.register_buffer("field_starts", starts, persistent=False)

    @classmethod
    def from_mask(cls, field_sizes: Sequence[int], mask: Tensor, weight: Tensor) -> Self:
        """Keep the entries of `weight` `[N, D]` where `mask` `[N, D]` is True, including zeros."""
        if mask.shape != weight.shape or len(mask) != sum(field_sizes):
            shapes = f"mask has shape {tuple(mask.shape)} and weight {tuple(weight.shape)}"
            raise ValueError(f"{shapes}: expected [{sum(field_sizes)}, D], the sum of field_sizes in rows.")
        positions = mask.reshape(-1).nonzero().squeeze(1)
        return cls(field_sizes, mask.shape[1], positions, weight.detach().reshape(-1)[positions])

    @classmethod
    def from_table(cls, field_sizes: Sequence[int], table: CompactTable) -> Self:
        if table.num_features != sum(field_sizes):
            raise ValueError(f"the table has {table.num_features} rows, but field_sizes sum to {sum(field_sizes)}.")
        positions, values = table.entries()
        placeholder = None if table.placeholder is None else torch.tensor(table.placeholder)
        entries = torch.from_numpy(positions), torch.from_numpy(values)
        return cls(field_sizes, table.embedding_dim, *entries, placeholder)

    def share_(self, other: Self) -> None:
        """Use the tensors of `other`, which has the same entries, so that two modules share one table."""
        self.values, self.row_starts, self.columns = other.values, other.row_starts, other.columns
        shared = {"values", "row_starts", "columns"}
        if other.placeholder is not None:
            self.set_placeholder_(other.placeholder)
            self.placeholder = other.placeholder
            shared.add("placeholder")
        self.shared_names = frozenset(shared)

    @property
    def weight(self) -> Tensor:
        """The dense table `[N, D]`, differentiable in the values, for models that read it; built at each read."""
        return computed_weight(self.to_dense())

    def forward(self, input: Tensor) -> Tensor:  # the name that nn.Embedding has
        if not self.scale_grad_by_freq:
            return self.vectors_of(input)  # [..., D]
        found = find_distinct(input, self.num_features)
        return functional.embedding(found.places, self.vectors_of(found.ids), scale_grad_by_freq=True)  # [..., D]

    def vectors_of(self, ids: Tensor) -> Tensor:
        vectors = compact_lookup(self.used_values(), self.row_starts, self.columns, ids, self.embedding_dim)
        return vectors if self.placeholder is None else vectors + self.placeholder[self.field_of(ids)]

    def field_of(self, ids: Tensor) -> Tensor:
        """The field of each id `[...]`."""
        return (ids.unsqueeze(-1) >= self.field_starts).sum(-1) - 1

    def used_values(self) -> Tensor:
        """The values that lookups use, `[K]`."""
        return self.values

    @property
    def prefers_distinct_rows(self) -> bool:
        # on another device, finding distinct ids would wait for it
        return self.training and torch.is_grad_enabled() and self.values.device.type == "cpu"

    def distinct_rows(self, ids: Tensor) -> tuple[Tensor, DistinctIds]:
        distinct = find_distinct(ids, self.num_features)
        return self(distinct.ids), distinct

    def positions(self) -> Tensor:
        """Flat positions `row · D + column` of the kept entries `[K]`, ascending."""
        rows = torch.repeat_interleave(torch.arange(self.num_features, device=self.columns.device), self.sizes())
        return rows * self.embedding_dim + self.columns.long()

    def sizes(self) -> Tensor:
        """Kept dimensions per feature `[N]`; 0 for a dropped one."""
        return self.row_starts.diff().long()

    def mask(self) -> Tensor:
        mask = torch.zeros(self.num_features * self.embedding_dim, dtype=torch.bool, device=self.columns.device)
        mask[self.positions()] = True
        return mask.view(self.num_features, self.embedding_dim)

    def to_dense(self) -> Tensor:
        """The dense table `[N, D]`, differentiable in the values."""
        values = self.used_values()
        cells = values.new_zeros(self.num_features * self.embedding_dim)
        dense = cells.scatter(0, self.positions(), values).view(-1, self.embedding_dim)
        if self.placeholder is None:
            return dense
        sizes = torch.tensor(self.field_sizes, device=dense.device)
        return dense + self.placeholder.repeat_interleave(sizes, dim=0)

    def num_parameters(self) -> int:
        return len(self.values) + (0 if self.placeholder is None else self.placeholder.numel())

    def storage_bytes(self) -> int:
        """Bytes of the `CompactTable` that a bundle stores."""
        layout, _ = encode_positions((self.num_features, self.embedding_dim), to_numpy(self.positions()), "fp32")
        added = 0 if self.placeholder is None else self.placeholder.numel() * 4 + self.num_fields * 8
        return layout.storage_bytes + added

    def to_table(self) -> CompactTable:
        shape = (self.num_features, self.embedding_dim)
        return CompactTable.from_entries(shape, self.positions(), self.values, placeholder=self._stored_placeholder())

    def _stored_placeholder(self) -> tuple[Tensor, Sequence[int]] | None:
        return None if self.placeholder is None else (self.placeholder, self.field_sizes)

    def extra_repr(self) -> str:
        return f"{self.num_features}, {self.embedding_dim}, num_parameters={self.num_parameters()}"


class QuantizedEmbedding(CompactEmbedding):
    """A `CompactEmbedding` for quantization-aware training: its vectors are those of its int8 or int4 table.

    Forward rounds the values to codes, backward passes gradients straight through, and the scale of each block is
    learned (learned step size quantization, Esser et al., ICLR 2020). Meant to continue from a trained
    `CompactEmbedding` for a few epochs. A scale is `first_scales · exp(scale_shift)`: always positive, and weight decay
    pulls it to its first value instead of to zero.
    """

    first_scales: Tensor  # float32 [blocks]

    def __init__(self, embedding: CompactEmbedding, value_type: ValueType) -> None:
        if not is_quantized(value_type):
            raise ConfigError(f"value_type is {value_type!r}: quantization-aware training supports int8 and int4.")
        entries = embedding.positions(), embedding.values
        super().__init__(embedding.field_sizes, embedding.embedding_dim, *entries, embedding.placeholder)
        self.value_type, self.scale_grad_by_freq = value_type, embedding.scale_grad_by_freq
        values = embedding.values.detach().cpu().numpy()
        scales = torch.from_numpy(quantize(values, value_type).scales).to(embedding.values.device)
        self.register_buffer("first_scales", scales.clamp(min=torch.finfo(torch.float32).tiny * 256))
        self.scale_shift = nn.Parameter(torch.zeros_like(scales))

    def scales(self) -> Tensor:
        return self.first_scales * self.scale_shift.exp()  # [blocks]

    def used_values(self) -> Tensor:
        """The values as they will be stored `[K]`, differentiable in the values and the scales."""
        codes = self._unrounded_codes()
        rounded = codes + (codes.round() - codes).detach()  # straight-through gradient
        return (rounded * self.scales().unsqueeze(1)).view(-1)[: len(self.values)]

    def _unrounded_codes(self) -> Tensor:
        block, largest = SCALE_BLOCK[self.value_type], MAX_CODE[self.value_type]
        padded = functional.pad(self.values, (0, len(self.first_scales) * block - len(self.values)))
        return (padded.view(-1, block) / self.scales().unsqueeze(1)).clamp(-largest, largest)  # [blocks, block]

    def storage_bytes(self) -> int:
        return self.to_table().storage_bytes

    @torch.no_grad()
    def to_table(self) -> CompactTable:
        """A table with the codes and scales of the forward pass."""
        codes = self._unrounded_codes().round().view(-1)[: len(self.values)].cpu().numpy().astype(np.int8)
        quantized = Quantized(codes, self.scales().cpu().numpy())
        shape = (self.num_features, self.embedding_dim)
        return CompactTable.from_entries(
            shape, self.positions(), quantized, value_type=self.value_type, placeholder=self._stored_placeholder()
        )


def quantize_aware_(model: nn.Module, value_type: ValueType) -> Sequence[str]:
    """Replace each `CompactEmbedding` by a `QuantizedEmbedding` and return their names. Then build the optimizer."""
    compact = {name: module for name, module in model.named_modules() if isinstance(module, CompactEmbedding)}
    names = [name for name, module in compact.items() if type(module) is CompactEmbedding]
    if not names:
        raise ConfigError("the model has no CompactEmbedding to quantize. Retrain a ticket first.")
    for name in names:
        model.set_submodule(name, QuantizedEmbedding(compact[name], value_type))
    return names
