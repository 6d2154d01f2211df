"""FM term, deep term and attention in numpy, in evaluation mode; equal to those of `models.layers` up to rounding."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def fm_term(vectors: Floats) -> Floats:
    """`models.layers.fm_term`: vectors `[n, F, D]` → `[n]`."""
    total = np.ones(vectors.shape[1], np.float32) @ vectors  # [n, D]
    found: Floats = 0.5 * (np.square(total) - np.einsum("nfd,nfd->nd", vectors, vectors)).sum(1)
    return found


@cache  # a failed import is slow
def choose_product() -> Callable[[Floats, Floats], Floats]:
    """`inputs @ weight`: vectors of a pruned table are mostly zero, which the kernel skips."""
    try:
        from thresher.kernels.sparse_products import sparse_product
    except ImportError:  # numba is not installed
        return np.matmul
    return sparse_product


@dataclass(frozen=True)
class DeepLayer:
    """A linear layer; the batch norm behind it, if there is one, is part of its weight and bias."""

    weight: Floats  # [inputs, outputs]
    bias: Floats


def deep_layers(network: Mapping[str, npt.NDArray[Any]]) -> list[DeepLayer]:
    """The layers of `models.layers.DeepTerm` with their stored statistics; none if the model has no deep term."""
    prefix = "deep_term.layers"
    # a hidden layer takes up to four positions in the sequence, and only its linear layer has a 2-D weight
    weights = ((at, network.get(f"{prefix}.{at}.weight")) for at in range(4 * len(network)))
    layers = []
    for at, weight in weights:
        if weight is None or weight.ndim != 2:
            continue
        bias: Floats = np.array(network[f"{prefix}.{at}.bias"])
        scale, norm = np.ones(len(weight), np.float32), f"{prefix}.{at + 1}"
        if f"{norm}.running_mean" in network:
            deviation = np.sqrt(network[f"{norm}.running_var"] + np.float32(1e-5))  # torch's default epsilon
            scale = np.asarray(network[f"{norm}.weight"] / deviation, np.float32)
            bias = (bias - network[f"{norm}.running_mean"]) * scale + network[f"{norm}.bias"]
        layers.append(DeepLayer(np.ascontiguousarray(weight.T * scale), bias))
    return layers


def deep_term(layers: Sequence[DeepLayer], product: Floats) -> Floats:
    """`models.layers.DeepTerm` in evaluation mode, from the inputs times the first weight: `[n]`."""
    outputs = product + layers[0].bias
    for layer in layers[1:]:  # hidden layers end with ReLU
        outputs = np.maximum(outputs, np.float32(0)) @ layer.weight + layer.bias
    return outputs[:, 0]


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
