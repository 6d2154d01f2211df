"""mask_lookups: lookups of sharded tables read pruned entries as 0.

FBGEMM's kernels update every entry of the rows that a batch looks up, pruned ones too. If these grew until the next
pruning, the model would not train with the pruned tables. So the rows of a batch are masked before each lookup, at a
cost that follows the batch and not the table.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from torchrec import KeyedJaggedTensor
from torchrec.distributed.batched_embedding_kernel import BaseBatchedEmbedding, BaseBatchedEmbeddingBag
from torchrec.distributed.model_parallel import get_unwrapped_module

from thresher.errors import AttachError
from thresher.integrations.sharding.shards import SHARDED_COLLECTIONS, Shard


def mask_lookups(model: nn.Module, shards: Sequence[Shard]) -> list[RemovableHandle]:
    """Call `before_lookup` of each shard before the kernels of `model` look it up."""
    missing = {shard.weight.data_ptr(): shard for shard in shards if shard.weight.numel()}
    hooks = []
    for collection, kernel in _kernels(model):
        found = [missing.pop(weight.data_ptr(), None) for weight in kernel.split_embedding_weights()]
        if any(found):
            of_features = [found[table] for table in kernel._feature_table_map]
            hooks.append(kernel.register_forward_pre_hook(_BeforeLookup(collection, of_features)))
    if missing:
        names = sorted({shard.table for shard in missing.values()})
        raise AttachError(f"the kernels that look up table {names[0]} were not found. Leave it out with where=…")
    return hooks


def _kernels(model: nn.Module) -> Iterator[tuple[nn.Module, Any]]:
    """Each sharded collection with its kernels, which it does not list among its modules."""
    for collection in get_unwrapped_module(model).modules():
        if isinstance(collection, SHARDED_COLLECTIONS):
            for lookup in collection._lookups:
                for module in lookup.modules():
                    if isinstance(module, BaseBatchedEmbedding | BaseBatchedEmbeddingBag):
                        yield collection, module


class _BeforeLookup:
    """A hook of a kernel: passes on the ids of each feature to the shard that it looks up, if that is searched."""

    def __init__(self, collection: nn.Module, shards: Sequence[Shard | None]) -> None:
        self.collection, self.shards = collection, shards

    def __call__(self, kernel: nn.Module, inputs: tuple[KeyedJaggedTensor, *tuple[Tensor, ...]]) -> None:
        features = inputs[0]
        ids_of = torch.split(features.values(), features.length_per_key())
        for shard, ids in zip(self.shards, ids_of, strict=True):
            if shard is not None:
                shard.before_lookup(ids.long(), training=self.collection.training)
