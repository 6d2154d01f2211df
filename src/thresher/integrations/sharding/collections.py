"""PEP and compact tables inside TorchRec's EmbeddingBagCollection and EmbeddingCollection.

DistributedModelParallel shards a collection by its class, from the Parameters that it finds inside. It would lose the
thresholds of an attached table, and cannot shard a compact one. Collections with such tables get a subclass of their
own, which no sharder takes: every process keeps them whole, and their gradients are averaged as those of the network.
"""

from typing import Any

from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection

from thresher.attach.attach import AttachedTable, attach_ as attach_tables_, detach_ as detach_tables_
from thresher.attach.attached_tables import AttachedModule
from thresher.compact.embedding import CompactEmbedding
from thresher.embeddings.pep import PepConfig
from thresher.errors import AttachError


class UnshardedEmbeddingBagCollection(EmbeddingBagCollection):  # type: ignore[misc]
    """An EmbeddingBagCollection that DistributedModelParallel keeps whole in every process."""


class UnshardedEmbeddingCollection(EmbeddingCollection):  # type: ignore[misc]
    """An EmbeddingCollection that DistributedModelParallel keeps whole in every process."""


_UNSHARDED: dict[type[nn.Module], type[nn.Module]] = {
    EmbeddingBagCollection: UnshardedEmbeddingBagCollection,
    EmbeddingCollection: UnshardedEmbeddingCollection,
}


def attach_(model: nn.Module, config: PepConfig | None = None, **options: Any) -> list[AttachedTable]:
    """`thresher.attach_` for models with TorchRec's collections, before DistributedModelParallel.

    Attached collections are not sharded; `thresher.Searcher` searches them, with learned thresholds. Use
    `ShardedSearcher`, without `attach_`, for tables that must be sharded.

    Args:
        options: those of `thresher.attach_`, such as `where`.
    """
    tables = attach_tables_(model, config, **options)
    if _pruned_collections(model):
        keep_unsharded_(model)
    return tables


def detach_(model: nn.Module, *, prune: bool = True) -> list[AttachedTable]:
    """`thresher.detach_`; collections without attached or compact tables can be sharded again."""
    tables = detach_tables_(model, prune=prune)
    plain = {unsharded: kind for kind, unsharded in _UNSHARDED.items()}
    for module in model.modules():
        if type(module) in plain and not _has_pruned_table(module):
            module.__class__ = plain[type(module)]
    return tables


def keep_unsharded_(model: nn.Module) -> list[str]:
    """Keep collections with attached or compact tables out of sharding; returns their names.

    Call it after `ticket.apply_` and before DistributedModelParallel. A collection is sharded as a whole or not at all:
    put tables that must stay sharded into another one.
    """
    found = _pruned_collections(model)
    if not found:
        raise AttachError(
            f"{type(model).__qualname__} has no collection with attached or compact tables. Call attach_, or apply_ "
            "of a ticket, first"
        )
    for module in found.values():
        module.__class__ = _UNSHARDED.get(type(module), type(module))
    return list(found)


def _pruned_collections(model: nn.Module) -> dict[str, nn.Module]:
    kinds = (*_UNSHARDED, *_UNSHARDED.values())
    return {name: part for name, part in model.named_modules() if type(part) in kinds and _has_pruned_table(part)}


def _has_pruned_table(collection: nn.Module) -> bool:
    return any(isinstance(module, AttachedModule | CompactEmbedding) for module in collection.modules())
