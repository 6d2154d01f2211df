"""drop_rows_: a ticket of whole rows as smaller collections, which TorchRec shards and trains as any others.

A budget such as `10%rows` keeps or drops whole rows. The new tables hold the kept rows only, and ids are remapped
before the lookup. Results equal those of zeros in the dropped rows.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torchrec import (
    EmbeddingBagCollection,
    EmbeddingCollection,
    JaggedTensor,
    KeyedJaggedTensor,
    KeyedTensor,
    PoolingType,
)

from thresher.errors import AttachError, ThresherError
from thresher.search.ticket import MaskTicket, Rewind, check_rewind, check_state, check_table, kept_weights


def drop_rows_(model: nn.Module, ticket: MaskTicket, *, rewind: Rewind = "initial") -> list[str]:
    """Replace the collections with tables of `ticket` by smaller ones, and rewind the model as `ticket.apply_` does.

    Returns:
        The names of the replaced collections; the collection inside each is called `collection`.
    """
    check_rewind(rewind)
    for name, mask in ticket.masks.items():
        if not torch.equal(mask.any(1), mask.all(1)):
            raise ThresherError(
                f"the ticket keeps parts of rows of {name}. drop_rows_ needs whole rows: search with a budget such as "
                "10%rows, or use ticket.apply_"
            )
    tables = _collections_of(model, ticket)
    for name, mask in ticket.masks.items():
        check_table(model, name, mask)
    if rewind != "random":
        weights = ticket.initial if rewind == "initial" else ticket.final
        check_state(kept_weights(model, ticket.masks).state, weights.state)
        model.load_state_dict(dict(weights.state), strict=False)
        for name, mask in ticket.masks.items():
            with torch.no_grad():
                model.get_parameter(f"{name}.weight")[mask.any(1)] = weights.values[name].view(-1, mask.shape[1])
    for path, kept in tables.items():
        model.set_submodule(path, RemappedCollection(model.get_submodule(path), kept))
    return list(tables)


class RemappedCollection(nn.Module):
    """A collection whose tables lost rows: remaps ids, and leaves out those of dropped rows.

    Args:
        kept: table → the rows it keeps, bool `[N]`.
    """

    def __init__(self, whole: nn.Module, kept: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.pools = isinstance(whole, EmbeddingBagCollection)
        self.collection, configs = _smaller(whole, kept), _configs(whole)
        self.table_of = {feature: config.name for config in configs for feature in config.feature_names}
        if len(self.table_of) < sum(len(config.feature_names) for config in configs):
            raise AttachError("a feature is looked up in two tables, so that its ids cannot be remapped. Name it twice")
        means = {config.name for config in configs if self.pools and config.pooling == PoolingType.MEAN}
        self.mean_features = {feature for feature, table in self.table_of.items() if table in means}
        for table, rows in kept.items():
            self.register_buffer(f"new_ids_{table}", torch.where(rows, rows.cumsum(0) - 1, -1))

    def forward(self, features: KeyedJaggedTensor) -> Any:
        names, lengths, weights = features.keys(), features.lengths(), features.weights_or_none()
        ids = self._new_ids(features)
        kept = ids >= 0
        bags = torch.repeat_interleave(torch.arange(len(lengths), device=ids.device), lengths.long())
        new_lengths = torch.bincount(bags[kept], minlength=len(lengths)).to(lengths.dtype)
        fewer = KeyedJaggedTensor(names, ids[kept], weights if weights is None else weights[kept], lengths=new_lengths)
        found = self.collection(fewer)
        if not self.pools:
            parts = zip(names, torch.split(kept, features.length_per_key()), features.to_dict().values(), strict=True)
            return {name: _with_zeros(found[name], own, before) for name, own, before in parts if name in self.table_of}
        if not self.mean_features:
            return found
        shares = (new_lengths / lengths.clamp_min(1)).view(len(names), -1)  # of each bag, what is kept
        share_of = dict(zip(names, shares, strict=True))
        pooled = found.keys()
        factors = [share_of[name] if name in self.mean_features else torch.ones_like(shares[0]) for name in pooled]
        widths = torch.tensor(found.length_per_key(), device=shares.device)
        values = found.values() * torch.stack(factors, 1).repeat_interleave(widths, dim=1)  # [B, ΣD]
        return KeyedTensor(pooled, found.length_per_key(), values)

    def _new_ids(self, features: KeyedJaggedTensor) -> Tensor:
        """The ids of all features in the smaller tables; −1 for dropped rows."""
        parts = []
        for name, ids in zip(features.keys(), torch.split(features.values(), features.length_per_key()), strict=True):
            new_ids = self._buffers.get(f"new_ids_{self.table_of.get(name)}")
            parts.append(ids if new_ids is None else new_ids[ids.long()].to(ids.dtype))
        return torch.cat(parts)


def _with_zeros(found: JaggedTensor, kept: Tensor, before: JaggedTensor) -> JaggedTensor:
    """The vectors of all ids of a feature, where only those of kept rows were looked up."""
    vectors = found.values().new_zeros(len(kept), found.values().shape[1])
    return JaggedTensor(vectors.index_copy(0, kept.nonzero().squeeze(1), found.values()), lengths=before.lengths())


def _collections_of(model: nn.Module, ticket: MaskTicket) -> dict[str, dict[str, Tensor]]:
    """Name of each collection with tables of the ticket → table → the rows it keeps."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, mask in ticket.masks.items():
        path, _, table = name.rpartition(".")
        path = path.rpartition(".")[0]
        collection = dict(model.named_modules()).get(path)
        if type(collection) not in (EmbeddingBagCollection, EmbeddingCollection) or not path:
            raise AttachError(
                f"{name} is not a table of a plain collection inside the model. Build it as for the search"
            )
        found.setdefault(path, {})[table] = mask.any(1)
    return found


def _configs(collection: Any) -> list[Any]:
    pools = isinstance(collection, EmbeddingBagCollection)
    return list(collection.embedding_bag_configs() if pools else collection.embedding_configs())


@torch.no_grad()
def _smaller(whole: Any, kept: Mapping[str, Tensor]) -> Any:
    """A collection of the kept rows; a table without any gets one row, which is never looked up."""
    all_rows = {config.name: torch.ones(config.num_embeddings, dtype=torch.bool) for config in _configs(whole)}
    rows_of = all_rows | dict(kept)
    configs = [replace(c, num_embeddings=max(1, int(rows_of[c.name].sum()))) for c in _configs(whole)]
    if isinstance(whole, EmbeddingBagCollection):
        smaller = EmbeddingBagCollection(configs, is_weighted=whole.is_weighted(), device=whole.device)
        tables, before = smaller.embedding_bags, whole.embedding_bags
    else:
        smaller = EmbeddingCollection(configs, device=whole.device, need_indices=whole.need_indices())
        tables, before = smaller.embeddings, whole.embeddings
    for name, table in tables.items():
        rows = rows_of[name]
        table.weight[: int(rows.sum())] = before[name].weight[rows]
    return smaller
