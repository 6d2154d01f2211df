"""Which ids of a batch are looked up, and how their vectors are pooled into bags, for attached and compact tables."""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from thresher._internal.mapped_tensors import is_traced
from thresher.kernels.distinct import DistinctIds, find_distinct


def ids_to_look_up(ids: Tensor, num_features: int, *, by_frequency: bool) -> DistinctIds:
    """The distinct ids of a batch; all ids while a graph is traced, because the number of distinct ids is unknown.

    Gradients that are scaled `by_frequency` need distinct ids, whose places tell how often each occurs.
    """
    if is_traced() and not by_frequency:
        places = torch.arange(ids.numel(), device=ids.device).view_as(ids)
        return DistinctIds(ids.flatten().long(), places, num_features)
    return find_distinct(ids, num_features)


class BagSettings(Protocol):
    """Pooling settings of an `nn.EmbeddingBag`."""

    mode: str
    padding_idx: int | None
    include_last_offset: bool
    scale_grad_by_freq: bool


def pool_bags(
    bag: BagSettings, vectors: Tensor, found: DistinctIds, offsets: Tensor | None, per_sample_weights: Tensor | None
) -> Tensor:
    """Pool the vectors `[U, D]` of `ids_to_look_up` into bags `[B, D]` with the settings of `bag`."""
    places = found.places.long() if offsets is None else found.places.to(offsets.dtype)
    padding = None
    if bag.padding_idx is not None and is_traced() and not bag.scale_grad_by_freq:
        vectors, padding = functional.pad(vectors, (0, 0, 1, 0)), 0  # a row before the others for all padding
        places = torch.where(found.ids.view_as(places) == bag.padding_idx, 0, places + 1)
    elif bag.padding_idx is not None:  # its position among the distinct ids; an added row of zeros if it is not there
        padding = int((found.ids < bag.padding_idx).sum())
        if not bool((found.ids[padding : padding + 1] == bag.padding_idx).any()):
            vectors, padding = functional.pad(vectors, (0, 0, 0, 1)), len(vectors)
    return functional.embedding_bag(
        places,
        vectors,
        offsets,
        scale_grad_by_freq=bag.scale_grad_by_freq,
        mode=bag.mode,
        per_sample_weights=per_sample_weights,
        include_last_offset=bag.include_last_offset,
        padding_idx=padding,
    )
