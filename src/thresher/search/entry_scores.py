"""Scores of every entry of a trained model's tables, from one pass over its training rows; nothing is trained.

    magnitude   |v − p|                             no data at all
    taylor      Σ over batches |(v − p) · ∂L/∂v|    what removing the entry alone changes, to first order
    fisher      Σ over batches ((v − p) · ∂L/∂v)²   the same, squared: batches on which it matters much count more
    shapley     Σ over batches (its share)²         its share of the loss that all entries save together, see below

`p` is the placeholder: what a pruned entry reads as, 0 or the mean vector of its field, weighted by frequency.

Shares are Shapley values by field-wise permutation, after Shaver (arXiv:2411.13052): fields join in random order, each
goes from its placeholder to its vectors, and the change of the loss is divided among its entries by the gradient
half-way. Shaver adds up shares with their sign. Here they are squared first, because entries that help on some rows and
harm on others are needed too: with FM on MovieLens-1M at 50,000 entries, the sum of signed shares gives validation AUC
0.736, the sum of squares 0.842.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from thresher.attach.attached_tables import AttachedModule
from thresher.embeddings.thresholds import field_of_feature
from thresher.training.checkpoint import isolated_rng, seed_all
from thresher.training.epoch import device_of, evaluation_mode, mean_loss
from thresher.training.progress import Progress, StageProgress

if TYPE_CHECKING:
    from thresher.data.batches.batches import BatchSource

Score = Literal["magnitude", "taylor", "fisher", "shapley"]
Placeholder = Literal["zeros", "field-mean"]
LookUp = Callable[[Tensor], Tensor]
"""Distinct ids `[U]` → the rows `[U, D]` that the model uses."""


@dataclass(eq=False)
class ScoredEntries:
    """One table of a trained model while it is scored, with every module that looks it up.

    Attributes:
        fields: the field of each row `[N]`.
        placeholder: `[F, D]`.
    """

    weight: Tensor
    fields: Tensor
    holders: tuple[nn.Module, ...]
    placeholder: Tensor
    seen: Tensor | None = None
    padding_id: int | None = None

    def __post_init__(self) -> None:
        self.total = torch.zeros_like(self.weight)
        self.factors = torch.ones(len(self.placeholder))  # per field: 0 is its placeholder, 1 its own vectors
        self.used: list[tuple[Tensor, Tensor, Tensor]] = []  # of the last forward: ids, v − p, and the rows used

    @classmethod
    def of(cls, holders: tuple[nn.Module, ...], field_sizes: tuple[int, ...], **rest: Any) -> "ScoredEntries":
        """A table whose placeholder is 0."""
        first: Any = holders[0]
        weight: Tensor = getattr(first, "raw_weight", first.weight).detach()
        placeholder = weight.new_zeros(len(field_sizes), weight.shape[1])
        return cls(weight, field_of_feature(field_sizes).to(weight.device), holders, placeholder, **rest)

    def differences(self, ids: Tensor | slice = slice(None)) -> Tensor:
        """`v − p` of rows."""
        return self.weight[ids] - self.placeholder[self.fields[ids]]

    def rows(self, ids: Tensor) -> Tensor:
        """The `LookUp` of this table while it is scored."""
        ids = ids.long()
        difference = self.differences(ids)
        factors = self.factors[self.fields[ids]].unsqueeze(1)
        rows = (self.placeholder[self.fields[ids]] + factors * difference).requires_grad_()
        self.used.append((ids, difference, rows))
        return rows

    def set_mean_placeholder_(self, counts: Tensor) -> None:
        """Let each field's placeholder be the mean of its vectors, weighted by how often each feature occurs."""
        weights = counts.to(self.weight).unsqueeze(1)
        sums = torch.zeros_like(self.placeholder).index_add_(0, self.fields, self.weight * weights)
        total = weights.new_zeros(len(self.placeholder), 1).index_add_(0, self.fields, weights)
        self.placeholder = sums / total.clamp_min(1)

    def scores(self) -> Tensor:
        """`[N, D]`; −∞ for rows that training never looked up, and for the padding row."""
        scores = self.total.clone()
        if self.seen is not None:
            scores[~self.seen] = -torch.inf
        if self.padding_id is not None:
            scores[self.padding_id] = -torch.inf
        return scores


def score_entries_(
    model: nn.Module,
    batches: "BatchSource",
    tables: Mapping[str, ScoredEntries],
    score: Score,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> None:
    """Add up the scores of all tables in `total`; `batches` are those of training."""
    if score == "magnitude":
        for table in tables.values():
            table.total = table.differences().abs()
        return
    players = [(table, field) for table in tables.values() for field in range(len(table.placeholder))]
    every = len(players) if score == "shapley" else 1  # a batch of Shapley values costs a step per field
    shown = StageProgress(progress, stage=f"{score} scores", max_epochs=1, num_steps=len(batches))
    with isolated_rng(), evaluation_mode(model), _frozen(model), _filtered(tables.values()):
        seed_all(seed)
        for step, batch in enumerate(batches.epoch(1)):
            if step % every == 0:
                batch = batch.to(device_of(model))
                if score == "shapley":
                    _add_shapley(model, batch, players)
                else:
                    _add_removals(model, batch, tables, power=1 if score == "taylor" else 2)
            if shown.due():
                shown.report(step=step + 1)
    shown.report(step=len(batches), finished=True)


def count_lookups(model: nn.Module, batches: "BatchSource", tables: Mapping[str, ScoredEntries]) -> dict[str, Tensor]:
    """How often the training rows look up each row of the tables, `[N]` each; one pass without gradients."""
    counts = {name: torch.zeros(len(table.weight), dtype=torch.int64) for name, table in tables.items()}
    hooks = []
    for name, table in tables.items():

        def count(module: nn.Module, inputs: tuple[Any, ...], own: Tensor = counts[name]) -> None:
            own += torch.bincount(inputs[0].reshape(-1).long().cpu(), minlength=len(own))

        lookups = [holder for holder in table.holders if not isinstance(holder, nn.Linear)]
        hooks += [holder.register_forward_pre_hook(count) for holder in lookups]
    try:
        with evaluation_mode(model), torch.no_grad():
            for batch in batches.epoch(1):
                model(*batch.to(device_of(model)).inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return counts


def _add_removals(model: nn.Module, batch: Any, tables: Mapping[str, ScoredEntries], *, power: int) -> None:
    for table, ids, difference, gradient in _gradients(model, batch, tables.values()):
        table.total.index_add_(0, ids, (difference * gradient).abs() ** power)


def _add_shapley(model: nn.Module, batch: Any, players: list[tuple[ScoredEntries, int]]) -> None:
    tables = list(dict.fromkeys(table for table, _ in players))
    for table in tables:
        table.factors.zero_()
    for player in torch.randperm(len(players)).tolist():
        joining, field = players[player]
        joining.factors[field] = 0.5
        for table, ids, difference, gradient in _gradients(model, batch, tables):
            if table is joining:
                own = table.fields[ids] == field
                table.total.index_add_(0, ids[own], (difference * gradient)[own].square())
        joining.factors[field] = 1.0


def _gradients(model: nn.Module, batch: Any, tables: Any) -> Iterator[tuple[ScoredEntries, Tensor, Tensor, Tensor]]:
    """One forward and backward: for each lookup the table, its distinct ids, `v − p`, and the gradient of the loss."""
    for table in tables:
        table.used.clear()
    loss, weight = mean_loss(model(*batch.inputs), batch)
    found = [(table, *used) for table in tables for used in table.used]
    gradients = torch.autograd.grad(loss * weight, [rows for *_, rows in found], allow_unused=True)
    for (table, ids, difference, _), gradient in zip(found, gradients, strict=True):
        if gradient is not None:
            yield table, ids, difference, gradient


@contextmanager
def _filtered(tables: Any) -> Iterator[None]:
    """Inside, the model looks up the rows that each table's `rows` returns."""
    holders = [(holder, table) for table in tables for holder in table.holders]
    for holder, table in holders:
        if isinstance(holder, AttachedModule):  # an instance attribute hides the method of the class
            vars(holder)["pruned_rows"] = lambda found, table=table: table.rows(found.ids)
        else:
            holder.look_up = table.rows
    try:
        yield
    finally:
        for holder, _ in holders:
            if isinstance(holder, AttachedModule):
                del vars(holder)["pruned_rows"]
            else:
                holder.look_up = None


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Inside, no parameter needs a gradient: only looked-up rows do."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
