"""Quantized dense table: trained in float32, stored as fp16 or int8. The common alternative to pruning.

    fp16:  v = half(V)          int8:  v = scale · round(V / scale),  scale = max |V| / 127 over a block of 64 numbers

Rounding happens after training. In evaluation mode lookups are rounded, so validation chooses the best epoch as stored.
Nothing is pruned: `num_parameters` is `N·D`, and the saving shows in `storage_bytes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor
from torch.nn import functional

from thresher.compact.method_table import to_compact
from thresher.compact.table import CompactTable
from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig, FieldEmbedding, new_table
from thresher.embeddings.method_registry import register_embedding

SCALE_BLOCK = 64
MAX_CODE = 127


@dataclass(frozen=True, kw_only=True)
class QuantizedConfig(EmbeddingConfig):
    """The type of the stored numbers."""

    value_type: Literal["int8", "fp16"] = "int8"
    """Type of the stored numbers."""

    @classmethod
    def grid(cls) -> Sequence[Self]:
        return [cls(value_type="int8"), cls(value_type="fp16")]

    @classmethod
    def frontier_points(cls) -> Sequence[Self]:
        # small in bytes at full width, where a budget of parameters would make the table narrow
        return [cls(embedding_dim=width) for width in (64, 32, 16)]


@register_embedding("quantized", QuantizedConfig)
class QuantizedTable(FieldEmbedding):
    """Ids `[...]` → rows of `V` `[..., D]`: exact while training, as stored in evaluation mode."""

    def __init__(
        self, field_sizes: Sequence[int], config: QuantizedConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        self.weight = new_table(self.num_features, self.embedding_dim)
        self._rounded: tuple[int, Tensor] | None = None  # version of the weights, rounded weights

    def forward(self, ids: Tensor) -> Tensor:
        if self.training:
            self._rounded = None
            return functional.embedding(ids, self.weight)  # [..., D]
        return functional.embedding(ids, self.rounded_weight())

    @torch.no_grad()
    def rounded_weight(self) -> Tensor:
        """The table as stored `[N, D]`; rounded again only if the weights changed."""
        if self._rounded is None or self._rounded[0] != self.weight._version:
            rounded = self.weight.half().float() if self.config.value_type == "fp16" else round_to_int8(self.weight)
            self._rounded = (self.weight._version, rounded)
        return self._rounded[1]

    def num_parameters(self) -> int:
        return self.weight.numel()

    def storage_bytes(self) -> int:
        if self.config.value_type == "fp16":
            return self.weight.numel() * 2
        return self.weight.numel() + -(-self.weight.numel() // SCALE_BLOCK) * BYTES_PER_VALUE


def round_to_int8(weight: Tensor) -> Tensor:
    """Numbers rounded to 255 steps, with one scale for each block of 64 in row-major order."""
    flat = weight.detach().reshape(-1)
    blocks = functional.pad(flat, (0, -len(flat) % SCALE_BLOCK)).view(-1, SCALE_BLOCK)
    scales = blocks.abs().amax(dim=1, keepdim=True) / MAX_CODE
    codes = (blocks / torch.where(scales > 0, scales, 1)).round()
    return (codes * scales).view(-1)[: len(flat)].view_as(weight)


@to_compact.register
def _(embedding: QuantizedTable) -> CompactTable:
    weight = embedding.weight.detach()
    everything = torch.ones_like(weight, dtype=torch.bool)
    return CompactTable.from_mask(everything, weight, value_type=embedding.config.value_type)
