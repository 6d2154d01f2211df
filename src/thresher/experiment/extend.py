"""Tomorrow's ids: tickets, compact tables and bundles extended by appended features, old ones untouched.

New features of a field come after its old ones, so global ids of later fields move; `Growth` knows where to. What is
extended predicts as before, and can be refreshed by a short training. Not here: vocabularies, which grow while data is
encoded (`vocabulary_like` and `new_values = "append"` in a `DataConfig`).
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from thresher.attach.compact import CompactBag
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.method_table import AnyTable
from thresher.compact.stored import StoredEmbedding, make_trainable_
from thresher.compact.table import CompactTable
from thresher.data.encode.row_encoder import RowEncoder
from thresher.errors import ConfigError, FormatError
from thresher.models.base import CtrModel
from thresher.search.ticket import MaskTicket, Weights
from thresher.serving.bundle import Bundle, open_bundle, save_bundle

StartWord = Literal["unknown", "zeros"]
Start = StartWord | Tensor
"""What appended features begin with: what their field's unknown feature has, nothing, or given rows `[new, D]`."""


@dataclass(frozen=True)
class Growth:
    """Features per field, before and after.

    >>> growth = Growth((3, 2), (4, 2))
    >>> growth.moved_rows().tolist(), growth.new_rows().tolist()
    ([0, 1, 2, 4, 5], [3])
    """

    old_sizes: tuple[int, ...]
    new_sizes: tuple[int, ...]
    has_unknown: bool = True
    """Whether the first feature of each field stands for unknown values."""

    def __post_init__(self) -> None:
        sizes = zip(self.old_sizes, self.new_sizes, strict=False)
        if len(self.old_sizes) != len(self.new_sizes) or any(new < old for old, new in sizes):
            raise ConfigError(f"fields of {self.old_sizes} features cannot grow to {self.new_sizes}: none may shrink")

    @classmethod
    def of_table(cls, old_size: int, new_size: int) -> "Growth":
        """For a table that is one field without an unknown feature, as those of foreign models are."""
        return cls((old_size,), (new_size,), has_unknown=False)

    def start(self, wanted: Start | None) -> Start:
        """What new features begin with: as wanted, or what an unknown one has where there is one, or zeros."""
        if wanted is None:
            return "unknown" if self.has_unknown else "zeros"
        if not isinstance(wanted, Tensor) and wanted not in get_args(StartWord):
            raise ConfigError(f"start is {wanted!r}; it must be 'unknown', 'zeros' or the new rows")
        if isinstance(wanted, str) and wanted == "unknown" and not self.has_unknown:
            raise ConfigError("the table has no unknown feature to start from; say 'zeros', or give the new rows")
        return wanted

    def check(self, num_features: int) -> None:
        """Raise unless it is a table of so many rows that grows."""
        if sum(self.old_sizes) != num_features:
            raise ConfigError(f"the table has {num_features:,} rows, the growth begins with {sum(self.old_sizes):,}")

    def moved_rows(self) -> Tensor:
        """Where each old row is now `[N old]`, ascending."""
        starts = accumulate(self.new_sizes, initial=0)
        return torch.cat([torch.arange(size) + start for size, start in zip(self.old_sizes, starts, strict=False)])

    def new_rows(self) -> Tensor:
        """Which rows are new, ascending."""
        fresh = torch.ones(sum(self.new_sizes), dtype=torch.bool)
        fresh[self.moved_rows()] = False
        return fresh.nonzero().squeeze(1)

    def unknown_rows(self) -> Tensor:
        """For each new row the old row of its field's unknown feature."""
        starts = torch.tensor([0, *accumulate(self.old_sizes)][:-1], dtype=torch.int64)
        added = [new - old for old, new in zip(self.old_sizes, self.new_sizes, strict=True)]
        return starts.repeat_interleave(torch.tensor(added))


def extend_embedding(embedding: CompactEmbedding, growth: Growth, start: Start | None = None) -> CompactEmbedding:
    """A trainable compact table with rows for the new features.

    Not of a bag, whose vectors are pooled: extend its ticket, and apply that to a model with a larger bag.
    """
    if isinstance(embedding, CompactBag):
        raise ConfigError(
            "the table stands for an nn.EmbeddingBag, whose pooling its extended form would not have; use "
            "extend_ticket and apply the ticket to a model with a larger bag"
        )
    growth.check(embedding.num_features)
    positions, values = _extend(
        embedding.positions(), embedding.values.detach(), embedding.embedding_dim, growth, start
    )
    extended = CompactEmbedding(growth.new_sizes, embedding.embedding_dim, positions, values)
    extended.scale_grad_by_freq = embedding.scale_grad_by_freq
    return extended


def extend_table(table: CompactTable, growth: Growth, start: Start | None = None) -> CompactTable:
    """A stored table with rows for the new features, its values of the same type.

    Values of 8 and 4 bits are rounded again, since they share their scales with other neighbours now; where that
    matters, extend the table before it is quantised.
    """
    growth.check(table.num_features)
    old = [torch.from_numpy(part) for part in table.entries()]
    positions, values = _extend(old[0], old[1], table.embedding_dim, growth, start)
    shape = (sum(growth.new_sizes), table.embedding_dim)
    return CompactTable.from_entries(shape, positions, values, value_type=table.value_type)


def extend_ticket(
    ticket: MaskTicket, growth: Mapping[str, Growth], start: Mapping[str, Start] | None = None
) -> MaskTicket:
    """A ticket for a model with more features.

    Args:
        growth: table name → how it grew; also of tables that were not searched, such as first-order weights.
        start: table name → what its new features begin with; by default what their unknown feature has, or zeros in a
            table without one. Of given rows the entries that are not 0 are kept; of zeros there is nothing to train,
            unless everything of the table is kept.
    """
    start = {} if start is None else start
    masks, known = dict(ticket.masks), {*ticket.masks, *(key.removesuffix(".weight") for key in ticket.initial.state)}
    if foreign := sorted((growth.keys() | start.keys()) - known):
        raise ConfigError(f"the ticket has no table {', '.join(foreign)}; it prunes {', '.join(masks)}")
    for name in growth.keys() & masks.keys():
        positions, _ = _extend_kept(ticket, ticket.initial, name, growth[name], start)
        masks[name] = torch.zeros(sum(growth[name].new_sizes), masks[name].shape[1], dtype=torch.bool)
        masks[name].view(-1)[positions] = True
    both = []
    for weights in (ticket.initial, ticket.final):
        values, state = dict(weights.values), dict(weights.state)
        for name, grown in growth.items():
            if name in masks:
                values[name] = _extend_kept(ticket, weights, name, grown, start)[1]
            else:
                state[f"{name}.weight"] = _extend_rows(state[f"{name}.weight"], grown, start.get(name))
        both.append(Weights(values, state))
    return replace(ticket, masks=masks, initial=both[0], final=both[1])


def extend_bundle(source: str | Path, folder: str | Path, encoder: RowEncoder, start: Start = "unknown") -> Path:
    """Write a bundle again for vocabularies that have grown; rows it knew are predicted as before (`extend_table`).

    Args:
        encoder: the new schema and vocabularies; each must begin with the old one.
        start: what new features begin with. With `unknown` also rows of new features are predicted as before.
    """
    bundle = open_bundle(source)
    for old, new in zip(bundle.encoder.vocabularies, encoder.vocabularies, strict=False):
        if not new.values.head(len(old.values)).equals(old.values):
            raise FormatError(f"the vocabularies do not begin with those of {source}; encode with those as known ones")
    growth = Growth(bundle.encoder.schema.field_sizes, encoder.schema.field_sizes)
    tables: dict[str, AnyTable] = {}
    for name, table in bundle.tables.items():
        if not isinstance(table, CompactTable):
            raise FormatError(f"{source}: table {name!r} is not stored row by row, so rows cannot be appended")
        is_embedding = bundle.model.get_submodule(name) is bundle.model.embedding
        begin = "unknown" if isinstance(start, Tensor) and not is_embedding else start
        tables[name] = extend_table(table, growth, begin)
        bundle.model.set_submodule(name, StoredEmbedding(growth.new_sizes, tables[name]))
    larger = replace(bundle, tables=tables)
    sizes = {"num_parameters": larger.num_parameters, "storage_bytes": larger.searched_bytes}
    facts = {key: sizes.get(key, value) for key, value in bundle.facts.items()}
    return save_bundle(folder, bundle.model, bundle.model_config, encoder, facts=facts, searched=bundle.searched)


def to_trainable(bundle: Bundle) -> CtrModel:
    """The model of a bundle in the form that trains, to refresh it: on the kept values, and on the network.

    Pruned tables stay pruned; what no search went over, as first-order weights by default, is a plain table again.
    """
    for name, table in bundle.tables.items():
        if not isinstance(table, CompactTable):
            raise FormatError(
                f"{bundle.folder}: table {name!r} is stored as its method's own form ({table.form.kind}), which does "
                "not train on; train the model anew"
            )
    model = copy.deepcopy(bundle.model, {id(table): table for table in bundle.tables.values()})  # they are memory maps
    make_trainable_(model)
    for name in bundle.tables.keys() - bundle.searched_tables.keys():
        embedding = model.get_submodule(name)
        assert isinstance(embedding, CompactEmbedding)
        N, D = embedding.num_features, embedding.embedding_dim
        model.set_submodule(name, nn.Embedding(N, D, _weight=embedding.values.detach().view(N, D)))
    return model.train()


def _extend_kept(
    ticket: MaskTicket, weights: Weights, name: str, growth: Growth, start: Mapping[str, Start]
) -> tuple[Tensor, Tensor]:
    mask = ticket.masks[name]
    growth.check(len(mask))
    kept = mask.reshape(-1).nonzero().squeeze(1)
    return _extend(kept, weights.values[name], mask.shape[1], growth, start.get(name))


def _extend(positions: Tensor, values: Tensor, D: int, growth: Growth, start: Start | None) -> tuple[Tensor, Tensor]:
    """Kept entries of the old table (flat positions and values, `[K]`) → those of the new one, ascending."""
    start = growth.start(start)
    rows, columns = positions // D, positions % D
    new_rows = growth.new_rows()
    places = [growth.moved_rows()[rows] * D + columns]
    parts = [values]
    if isinstance(start, Tensor):
        _check_given(start, len(new_rows), D)
        at, column = start.nonzero(as_tuple=True)
        places.append(new_rows[at] * D + column)
        parts.append(start[at, column].to(values.dtype))
    elif start == "unknown":
        for unknown in torch.unique(growth.unknown_rows()):
            of_field = new_rows[growth.unknown_rows() == unknown]
            entries = rows == unknown
            places.append((of_field.unsqueeze(1) * D + columns[entries]).flatten())
            parts.append(values[entries].repeat(len(of_field)))
    elif len(positions) == sum(growth.old_sizes) * D:  # nothing was pruned, so nothing new is
        places.append((new_rows.unsqueeze(1) * D + torch.arange(D)).flatten())
        parts.append(values.new_zeros(len(new_rows) * D))
    order = torch.cat(places).argsort()
    return torch.cat(places)[order], torch.cat(parts)[order]


def _check_given(start: Tensor, num_new: int, D: int) -> None:
    if start.shape != (num_new, D):
        raise ConfigError(f"{list(start.shape)} rows were given for {num_new} new features of width {D}")


def _extend_rows(weight: Tensor, growth: Growth, start: Start | None) -> Tensor:
    """The same for a table that is kept whole, `[N, D]`."""
    growth.check(len(weight))
    start = growth.start(start)
    extended = weight.new_zeros(sum(growth.new_sizes), weight.shape[1])
    extended[growth.moved_rows()] = weight
    if isinstance(start, Tensor):
        _check_given(start, len(growth.new_rows()), weight.shape[1])
        extended[growth.new_rows()] = start.to(weight.dtype)
    elif start == "unknown":
        extended[growth.new_rows()] = weight[growth.unknown_rows()]
    return extended
