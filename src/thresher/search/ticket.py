"""Ticket: what a search found for one budget, and all that is needed to train it from the start.

Three kinds: a mask ticket (here), sizes (`sizes`), or settings under which an unsearched method fits (`settings`).
A mask ticket says which entries of which tables stay, with the whole model's state before the first step of the search
(to rewind to) and at the moment the mask was cut (for the ablation that goes on from there).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from torch import Tensor, nn

from thresher._internal.tensor_state import tensor_state
from thresher._internal.text import list_first
from thresher.attach.compact_tables import put_compact_
from thresher.compact.embedding import CompactEmbedding
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding
from thresher.errors import ConfigError, ThresherError
from thresher.kernels.scores import ScoredTable, ScoresInMemory, top_masks
from thresher.search.budget import Budget

TABLE_STATE = ("weight", "deviation", "raw_threshold", "clock", "seen")
"""What a searched table has in the model's `state_dict`; of these a ticket holds the kept weights alone."""

Scores = Mapping[str, Tensor | ScoredTable]
"""Table name → its scores `[N, D]`, in memory or a few rows at a time."""

SHOWN_TABLES = 4

Rewind = Literal["initial", "random", "final"]
"""Where retraining starts: the weights before the search, the model's own fresh ones, or those at the cut."""


@dataclass(frozen=True)
class Weights:
    """A model's weights as a ticket keeps them: the kept values of searched tables, and the rest of the state.

    Attributes:
        values: table name → its kept values `[K]`, in row-major order of the mask.
        state: every other tensor of the model's `state_dict`.
    """

    values: Mapping[str, Tensor]
    state: Mapping[str, Tensor]

    def __repr__(self) -> str:
        num_values = sum(values.numel() for values in self.values.values())
        return f"Weights(kept_values={num_values:,}, other_tensors={len(self.state)})"


@dataclass(frozen=True)
class Provenance:
    """Where a ticket comes from, for whoever finds the file."""

    method: str
    seed: int
    step: int
    epoch: int
    config: Mapping[str, object] = field(default_factory=dict)


class Ticket(Protocol):
    """What retraining, storing and reporting need of any ticket."""

    @property
    def budget(self) -> Budget: ...
    @property
    def provenance(self) -> Provenance: ...
    @property
    def num_parameters(self) -> int: ...

    def embedding_config(self, searched: EmbeddingConfig) -> EmbeddingConfig:
        """What a model is built with to take this ticket, given what the search was built with."""
        ...

    def apply_(self, model: nn.Module, *, rewind: Rewind = "initial") -> Sequence[str]:
        """Put what was found into `model` and rewind the whole of it; returns the names of the tables touched."""
        ...


@dataclass(frozen=True)
class MaskTicket:
    """The entries that stay, over all searched tables together.

    Attributes:
        masks: table name → bool `[N, D]`, True = kept.
        initial: weights before the first step of the search.
        final: weights when the mask was cut.
    """

    budget: Budget
    masks: Mapping[str, Tensor]
    initial: Weights
    final: Weights
    provenance: Provenance

    @property
    def num_parameters(self) -> int:
        # not sum(), for which torch makes whole numbers of all entries first: twice the memory of the table
        return sum(int(mask.count_nonzero()) for mask in self.masks.values())

    def __repr__(self) -> str:
        tables = {
            name: f"{int(mask.count_nonzero()):,} of {mask.shape[0]:,} × {mask.shape[1]}"
            for name, mask in self.masks.items()
        }
        return ticket_text(self, tables)

    def embedding_config(self, searched: EmbeddingConfig) -> EmbeddingConfig:
        return searched

    def sizes(self) -> Mapping[str, Tensor]:
        """Kept dimensions per feature, `[N]` per table: the embedding sizes the paper speaks of."""
        return {name: mask.sum(dim=1) for name, mask in self.masks.items()}

    def apply_(self, model: nn.Module, *, rewind: Rewind = "initial") -> Sequence[str]:
        """Put compact tables that hold just the kept entries into `model`, and rewind the whole of it.

        With `rewind="random"` the model's own present weights are kept (masked): build it anew with another seed.
        Returns the names of the tables it replaced.
        """
        check_rewind(rewind)
        for name, mask in self.masks.items():
            _check_table(model, name, mask)
        present = kept_weights(model, self.masks)
        weights = {"initial": self.initial, "random": present, "final": self.final}[rewind]
        _check_state(present.state, weights.state)
        for name, mask in self.masks.items():
            put_compact_(model, name, mask.reshape(-1).nonzero().squeeze(1), weights.values[name])
        model.load_state_dict(dict(weights.state), strict=False)
        return list(self.masks)


def check_rewind(rewind: str) -> None:
    """Refuse a misspelled rewind, which would start from other weights than were asked for."""
    if rewind not in get_args(Rewind):
        raise ConfigError(f"rewind is {rewind!r}; it must be one of {', '.join(get_args(Rewind))}")


def ticket_text(ticket: Ticket, tables: Mapping[str, str]) -> str:
    """A ticket in a line: its sizes and where it comes from, none of its tensors.

    Args:
        tables: table name → what is kept of it; a few are shown.
    """
    shown = list_first((f"{name}: {kept}" for name, kept in tables.items()), SHOWN_TABLES)
    about = [f"budget={str(ticket.budget)!r}", f"method={ticket.provenance.method!r}"]
    about += [f"num_parameters={ticket.num_parameters:,}", f"tables=[{shown}]"]
    return f"{type(ticket).__name__}({', '.join(about)})"


def kept_weights(model: nn.Module, masks: Mapping[str, Tensor], state: Mapping[str, Tensor] | None = None) -> Weights:
    """The weights of `model` (or of a `state_dict` of it) in the form a ticket keeps."""
    state = tensor_state(model) if state is None else state
    tables = [model.get_submodule(name).get_parameter("weight") for name in masks]
    holders = _names(model, lambda module: any(module._parameters.get("weight") is table for table in tables))
    # of a holder only what is the table's: a tied linear layer keeps its bias
    owned = {f"{holder}.{key}" for holder in holders for key in TABLE_STATE}
    wholly = tuple(f"{holder}." for holder in holders if _is_table_alone(model.get_submodule(holder)))
    return Weights(
        values={name: state[f"{name}.weight"][mask].clone() for name, mask in masks.items()},
        state={key: value.clone() for key, value in state.items() if key not in owned and not key.startswith(wholly)},
    )


def _is_table_alone(holder: nn.Module) -> bool:
    return isinstance(holder, FieldEmbedding) and not isinstance(holder, nn.Linear)


def _check_table(model: nn.Module, name: str, mask: Tensor) -> None:
    try:
        table: nn.Module | None = model.get_submodule(name)
    except AttributeError:
        table = None
    if isinstance(table, CompactEmbedding):
        raise ThresherError(
            f"table {name!r} of this model is compact: a ticket has been applied to it already, or compact_; apply "
            "this one to a fresh model"
        )
    weight = getattr(table, "weight", None)
    if not isinstance(weight, Tensor) or weight.shape != mask.shape:
        raise ThresherError(
            f"the ticket prunes a table {name!r} of {mask.shape[0]} × {mask.shape[1]}, which this model does not have; "
            "build the model as the search did"
        )


def _check_state(present: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Raise unless a ticket's weights are those of the model, before anything of it is changed."""
    missing, unexpected = sorted(present.keys() - weights.keys()), sorted(weights.keys() - present.keys())
    if missing or unexpected:
        raise ThresherError(
            f"the ticket is for another model: missing {missing[:3]}, unexpected {unexpected[:3]}; "
            "build the model with the settings the search had"
        )
    for name, value in present.items():
        if value.shape != weights[name].shape:
            raise ThresherError(
                f"the ticket is for another model: its {name} is {list(weights[name].shape)}, the model's is "
                f"{list(value.shape)}; build the model with the settings the search had"
            )


def _names(model: nn.Module, chosen: Callable[[nn.Module], bool]) -> list[str]:
    """Every name the model has for the chosen modules."""
    return [name for name, module in model.named_modules(remove_duplicate=False) if chosen(module)]


def top_entries(scores: Scores, num_kept: int) -> dict[str, Tensor]:
    """Masks `[N, D]` of the `num_kept` highest scores over all tables together; ties go to the lower index."""
    return dict(zip(scores, top_masks(as_tables(scores), num_kept), strict=True))


def as_tables(scores: Scores) -> list[ScoredTable]:
    return [ScoresInMemory(table) if isinstance(table, Tensor) else table for table in scores.values()]
