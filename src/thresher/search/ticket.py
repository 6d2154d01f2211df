"""Ticket: what a search found for one budget, with the weights to train it from.

Mask and size tickets hold the state of the whole model before the first step of the search (to rewind to) and when the
ticket was cut (to continue from).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from torch import Tensor, nn

from thresher._internal.mapped_tensors import tensor_state
from thresher._internal.text import list_first
from thresher.attach.compact_tables import put_compact_
from thresher.compact.embedding import CompactEmbedding
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding
from thresher.embeddings.feature_groups import FeatureRuns, MixedDimensionEmbedding
from thresher.errors import ConfigError, ThresherError
from thresher.search.budget import Budget

TABLE_STATE = ("weight", "deviation", "raw_threshold", "clock", "seen")
"""Keys of a searched table in the model's `state_dict`; a ticket holds only the kept weights of them."""

Rewind = Literal["initial", "random", "final"]
"""Weights to retrain from: those before the search, the model's own fresh ones, or those when the ticket was cut."""


@dataclass(frozen=True)
class Provenance:
    """The search a ticket comes from."""

    method: str
    seed: int
    step: int
    epoch: int
    config: Mapping[str, object] = field(default_factory=dict)


class Ticket(Protocol):
    """Interface of all tickets, for retraining, storing and reporting."""

    @property
    def budget(self) -> Budget: ...
    @property
    def provenance(self) -> Provenance: ...
    @property
    def num_parameters(self) -> int: ...

    def embedding_config(self, searched: EmbeddingConfig) -> EmbeddingConfig:
        """The config to build a model with that this ticket is applied to, given the config of the search."""
        ...

    def apply_(self, model: nn.Module, *, rewind: Rewind = "initial") -> Sequence[str]:
        """Replace the tables of `model`, rewind the whole model, and return the names of the tables."""
        ...


@dataclass(frozen=True)
class Weights:
    """A model's weights in a mask ticket."""

    values: Mapping[str, Tensor]  # table name → its kept values [K], in row-major order of the mask
    state: Mapping[str, Tensor]  # every other tensor of the model's `state_dict`

    def __repr__(self) -> str:
        num_values = sum(values.numel() for values in self.values.values())
        return f"Weights(kept_values={num_values:,}, other_tensors={len(self.state)})"


@dataclass(frozen=True)
class MaskTicket:
    """The kept entries of all searched tables."""

    budget: Budget
    masks: Mapping[str, Tensor]  # table name → bool [N, D], True = kept
    initial: Weights  # before the first step of the search
    final: Weights  # when the ticket was cut; values after Eq. 8, as the model computed with them
    provenance: Provenance
    placeholders: Mapping[str, Tensor] = field(default_factory=dict)
    """Table name → what pruned entries read as, `[F, D]`; the values of `final` are then differences from it."""

    @property
    def num_parameters(self) -> int:
        # sum() would convert all entries to integers first: twice the memory of the table
        kept = sum(int(mask.count_nonzero()) for mask in self.masks.values())
        return kept + sum(vectors.numel() for vectors in self.placeholders.values())

    def __repr__(self) -> str:
        tables = {
            name: f"{int(mask.count_nonzero()):,} of {mask.shape[0]:,} × {mask.shape[1]}"
            for name, mask in self.masks.items()
        }
        return _ticket_text(self, tables)

    def embedding_config(self, searched: EmbeddingConfig) -> EmbeddingConfig:
        return searched

    def sizes(self) -> Mapping[str, Tensor]:
        """Kept dimensions per feature, `[N]` per table: the embedding sizes of the paper."""
        return {name: mask.sum(dim=1) for name, mask in self.masks.items()}

    def apply_(self, model: nn.Module, *, rewind: Rewind = "initial") -> Sequence[str]:
        """Replace tables of `model` by compact ones and rewind the model; `random` keeps its weights, masked."""
        check_rewind(rewind)
        for name, mask in self.masks.items():
            check_table(model, name, mask)
        present = kept_weights(model, self.masks)
        weights = {"initial": self.initial, "random": present, "final": self.final}[rewind]
        check_state(present.state, weights.state)
        for name, mask in self.masks.items():
            positions, placeholder = mask.reshape(-1).nonzero().squeeze(1), self.placeholders.get(name)
            put_compact_(model, name, positions, weights.values[name], placeholder if rewind == "final" else None)
        model.load_state_dict(dict(weights.state), strict=False)
        return list(self.masks)


@dataclass(frozen=True)
class TableSizes:
    """The embedding size of each group of features of one table; all groups are projected to `embedding_dim`."""

    embedding_dim: int
    sizes: tuple[int, ...]
    runs: FeatureRuns = field(repr=False)

    def build(self, field_sizes: Sequence[int]) -> MixedDimensionEmbedding:
        return MixedDimensionEmbedding(field_sizes, self.embedding_dim, self.runs, self.sizes, share_projections=True)


@dataclass(frozen=True)
class SizeTicket:
    """The embedding sizes a search chose for one budget."""

    budget: Budget
    tables: Mapping[str, TableSizes]
    initial: Mapping[str, Tensor]  # `state_dict` of the model before the search, its tables reduced to these sizes
    final: Mapping[str, Tensor]  # the same at the end of the search
    num_parameters: int
    provenance: Provenance

    def __repr__(self) -> str:
        tables = {
            name: ", ".join(f"{table.sizes.count(size)} groups of width {size}" for size in sorted(set(table.sizes)))
            for name, table in self.tables.items()
        }
        return _ticket_text(self, tables)

    def embedding_config(self, searched: EmbeddingConfig) -> EmbeddingConfig:
        return searched

    def sizes(self) -> Mapping[str, Tensor]:
        """The size of each feature, `[N]` per table."""
        tables = {name: table.build([sum(table.runs.group_sizes)]) for name, table in self.tables.items()}
        return {name: table.size_of_feature() for name, table in tables.items()}

    def apply_(self, model: nn.Module, *, rewind: Rewind = "initial") -> Sequence[str]:
        """Replace the tables of `model` by ones of these sizes and rewind the model; `random` keeps its weights."""
        check_rewind(rewind)
        for name, sizes in self.tables.items():
            table = dict(model.named_modules()).get(name)
            if not isinstance(table, FieldEmbedding) or table.num_features != sum(sizes.runs.group_sizes):
                features = sum(sizes.runs.group_sizes)
                raise ThresherError(
                    f"the model has no table {name!r} of {features} features. Build it as in the search"
                )
            device = next(table.parameters()).device
            model.set_submodule(name, sizes.build(table.field_sizes).to(device))
        if rewind != "random":
            try:
                model.load_state_dict(dict(self.initial if rewind == "initial" else self.final))
            except RuntimeError as error:
                raise ThresherError(f"the ticket is for another model ({error}). Build it as for the search") from None
        return list(self.tables)


@dataclass(frozen=True)
class SettingsTicket:
    """The largest settings of a method that fit a budget. Retraining starts from a fresh model with these settings."""

    budget: Budget
    embedding: EmbeddingConfig
    num_parameters: int
    storage_bytes: int
    provenance: Provenance

    def __repr__(self) -> str:
        about = f"budget={str(self.budget)!r}, method={self.provenance.method!r}"
        return f"SettingsTicket({about}, num_parameters={self.num_parameters:,}, embedding={self.embedding})"

    def embedding_config(self, searched: EmbeddingConfig) -> EmbeddingConfig:
        return self.embedding

    def apply_(self, model: nn.Module, *, rewind: Rewind = "initial") -> Sequence[str]:
        """Check that `model` was built with these settings; it keeps its fresh weights."""
        check_rewind(rewind)
        if rewind == "final":
            raise ConfigError(
                f'rewind = "final" continues a search; method {self.provenance.method!r} has none. Use "initial"'
            )
        tables = {name: module for name, module in model.named_modules() if isinstance(module, FieldEmbedding)}
        if self.embedding not in [getattr(table, "config", None) for table in tables.values()]:
            raise ThresherError(f"no table has the settings {self.embedding}. Build it with ticket.embedding_config(…)")
        return list(tables)


def kept_weights(
    model: nn.Module,
    masks: Mapping[str, Tensor],
    state: Mapping[str, Tensor] | None = None,
    *,
    values: Mapping[str, Tensor] | None = None,
) -> Weights:
    """The weights of `model`, or of a `state_dict` of it, as a mask ticket holds them.

    Args:
        values: the kept entries of each table, if they are not those of the state.
    """
    state = tensor_state(model) if state is None else state
    tables = [model.get_submodule(name).get_parameter("weight") for name in masks]
    modules = dict(model.named_modules(remove_duplicate=False))
    holders = [name for name, part in modules.items() if any(part._parameters.get("weight") is t for t in tables)]
    # a linear layer tied to a table keeps its bias; of an embedding nothing else is kept
    owned = {f"{holder}.{key}" for holder in holders for key in TABLE_STATE}
    plain = [name for name in holders if isinstance(modules[name], FieldEmbedding)]
    embeddings = tuple(f"{name}." for name in plain if not isinstance(modules[name], nn.Linear))
    if values is None:
        values = {name: kept_entries(state[f"{name}.weight"], mask) for name, mask in masks.items()}
    return Weights(
        values=values,
        state={key: t.clone() for key, t in state.items() if key not in owned and not key.startswith(embeddings)},
    )


def kept_entries(table: Tensor, mask: Tensor) -> Tensor:
    """The entries of `mask` `[N, D]`, `[K]` in row-major order; reads only rows that keep some."""
    rows = mask.any(1).nonzero().squeeze(1)
    return table.detach()[rows][mask[rows]]


def check_table(model: nn.Module, name: str, mask: Tensor) -> None:
    """Raise if the model has no such table as the mask is for."""
    table = dict(model.named_modules(remove_duplicate=False)).get(name)
    if isinstance(table, CompactEmbedding):
        raise ThresherError(f"table {name!r} of the model is already compact. Apply the ticket to a fresh model")
    weight = getattr(table, "weight", None)
    if not isinstance(weight, Tensor) or weight.shape != mask.shape:
        shape = f"{mask.shape[0]} × {mask.shape[1]}"
        raise ThresherError(
            f"the model has no table {name!r} of {shape}, which the ticket prunes. Build it as for the search"
        )


def check_state(present: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Check that the ticket's weights match the model, before the model is changed."""
    missing, unexpected = sorted(present.keys() - weights.keys()), sorted(weights.keys() - present.keys())
    difference = f"missing {missing[:3]}, unexpected {unexpected[:3]}" if missing or unexpected else None
    for name in present.keys() & weights.keys():
        if (shape := list(present[name].shape)) != (own := list(weights[name].shape)):
            difference = difference or f"its {name} has shape {own}, the model's has {shape}"
    if difference is not None:
        raise ThresherError(f"the ticket is for another model: {difference}. Build it with the settings of the search")


def check_rewind(rewind: str) -> None:
    """Raise if there are no such weights to retrain from."""
    if rewind not in get_args(Rewind):
        raise ConfigError(f"rewind is {rewind!r}; it must be one of {', '.join(get_args(Rewind))}")


def _ticket_text(ticket: Ticket, tables: Mapping[str, str]) -> str:
    """One-line summary of a ticket; `tables`: table name → what is kept of it."""
    shown = list_first((f"{name}: {kept}" for name, kept in tables.items()), 4)
    return (
        f"{type(ticket).__name__}(budget={str(ticket.budget)!r}, method={ticket.provenance.method!r}, "
        f"num_parameters={ticket.num_parameters:,}, tables=[{shown}])"
    )
