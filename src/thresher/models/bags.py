"""Multi-valued fields: a row's several feature ids become one pooled vector.

The batch brings them as ragged columns; this module only pools what an embedding looks up. It does not know files.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor


class Bag(Protocol):
    """One multi-valued field of a batch; row `b` has the ids `values[offsets[b]:offsets[b + 1]]`, possibly none."""

    @property
    def field(self) -> int:
        """Which of the `F` fields this is."""
        ...

    @property
    def values(self) -> Tensor:
        """Global feature ids, all rows one after the other: `[total]`."""
        ...

    @property
    def offsets(self) -> Tensor:
        """Where each row starts, and where the last one ends: `[B + 1]`."""
        ...

    @property
    def pooling(self) -> Literal["mean", "sum"]: ...


def pool(vectors: Tensor, offsets: Tensor, pooling: Literal["mean", "sum"]) -> Tensor:
    """Vectors `[total, D]` of ragged rows → one vector per row `[B, D]`; a row without values gets zeros."""
    lengths = offsets.diff()  # [B]
    rows = torch.repeat_interleave(lengths)  # [total]
    pooled = vectors.new_zeros(lengths.numel(), vectors.shape[-1]).index_add(0, rows, vectors)  # [B, D]
    return pooled if pooling == "sum" else pooled / lengths.clamp(min=1).to(pooled.dtype).unsqueeze(1)


def embed_fields(lookup: Callable[[Tensor], Tensor], ids: Tensor, bags: Sequence[Bag] = ()) -> Tensor:
    """Look up a batch, single- and multi-valued fields → vectors `[B, F, D]` in the order of the fields.

    Args:
        lookup: ids `[...]` → vectors `[..., D]`.
        ids: one id per single-valued field, those fields in their order: `[B, F − number of bags]`.
        bags: the multi-valued fields.
    """
    vectors: Tensor = lookup(ids)  # [B, F', D]
    if not bags:
        return vectors
    pooled = {bag.field: pool(lookup(bag.values), bag.offsets, bag.pooling) for bag in bags}  # field: [B, D]
    single = iter(vectors.unbind(1))
    num_fields = vectors.shape[1] + len(bags)
    return torch.stack([pooled[field] if field in pooled else next(single) for field in range(num_fields)], dim=1)
