"""AutoInt's self-attention in numpy, in evaluation mode; equal to `models.layers.SelfAttention` up to rounding."""

from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def attention_term(network: Mapping[str, npt.NDArray[Any]], vectors: Floats, num_heads: int) -> Floats:
    """All layers of attention and the linear unit after them. Vectors `[B, F, D]` → logits `[B]`."""
    for at in count():
        if f"attention.{at}.query.weight" not in network:
            break
        vectors = _attend(network, f"attention.{at}", vectors, num_heads)
    logits: Floats = vectors.reshape(len(vectors), -1) @ network["output.weight"][0] + network["output.bias"][0]
    return logits


def _attend(network: Mapping[str, npt.NDArray[Any]], prefix: str, vectors: Floats, num_heads: int) -> Floats:
    """One layer: vectors `[B, F, D]` → `[B, F, A]`. Dot products are not scaled."""
    B, F, D = vectors.shape
    names = [name for name in ("query", "key", "value", "residual") if f"{prefix}.{name}.weight" in network]
    weights = np.concatenate([network[f"{prefix}.{name}.weight"] for name in names])  # [3A or 4A, D]
    projected = (vectors.reshape(B * F, D) @ weights.T).reshape(B, F, len(names), num_heads, -1)
    query, key, value = projected[:, :, :3].transpose(2, 0, 3, 1, 4)  # [B, H, F, A/H] each
    scores = query @ key.swapaxes(2, 3)  # [B, H, F, F]
    shares = np.exp(scores - scores.max(axis=3, keepdims=True))
    shares /= shares.sum(axis=3, keepdims=True)
    attended = (shares @ value).swapaxes(1, 2)  # [B, F, H, A/H]
    if len(names) == 4:
        attended = attended + projected[:, :, 3]
    outputs: Floats = np.maximum(attended, 0).reshape(B, F, -1)
    return outputs
