"""PostTrainingSearch: tickets of a trained model by scores of its entries, for all budgets at once, without training.

Pruned entries read as 0, or as the mean vector of their field; means count as parameters of the budget.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from torch import Tensor, nn

from thresher.embeddings.base import BYTES_PER_VALUE
from thresher.errors import BudgetError, ConfigError
from thresher.search.budget import Budget
from thresher.search.entry_scores import Placeholder, Score, ScoredEntries, count_lookups, score_entries_
from thresher.search.mask_search import MaskSearch, Scores, entries_within, top_entries
from thresher.search.ticket import MaskTicket
from thresher.training.progress import Progress

if TYPE_CHECKING:
    from thresher.data.batches.batches import BatchSource

FIELD_START_BYTES = 8


class PostTrainingSearch(MaskSearch):
    """Cuts a ticket for each budget from the scores of a trained model."""

    tables: Mapping[str, ScoredEntries]

    def __init__(
        self,
        model: nn.Module,
        tables: Mapping[str, ScoredEntries],
        budgets: Sequence[Budget],
        *,
        placeholder: Placeholder,
        seed: int,
        on_ticket: Callable[[MaskTicket], None] | None = None,
    ) -> None:
        self.tables, self.placeholder = tables, placeholder
        weights = {name: table.weight for name, table in tables.items()}
        padding = sum(table.weight.shape[1] for table in tables.values() if table.padding_id is not None)
        num_entries = sum(weight.numel() for weight in weights.values()) - padding
        method = "post-training"
        super().__init__(
            model, weights, budgets, num_entries=num_entries, method=method, seed=seed, on_ticket=on_ticket
        )
        if placeholder == "field-mean":
            if any(table.padding_id is not None for table in tables.values()):
                raise ConfigError("placeholder = field-mean would change the padding row of a table. Use zeros")
            for budget in budgets:
                self._without_means(budget)

    def run(
        self,
        batches: "BatchSource",
        score: Score,
        feature_counts: Tensor | None = None,
        progress: Progress | None = None,
    ) -> list[MaskTicket]:
        """Score the entries in one pass over the training rows; returns the tickets, largest first.

        Args:
            feature_counts: how often each row of the only table occurs; by default they are counted if needed.
        """
        if self.placeholder == "field-mean":
            (name, *others) = self.tables
            known = feature_counts is not None and not others and len(feature_counts) == len(self.tables[name].weight)
            counts = {name: feature_counts} if known else count_lookups(self.model, batches, self.tables)
            for name, table in self.tables.items():
                own = counts[name]
                assert own is not None
                table.set_mean_placeholder_(own)
            self.placeholders = {name: table.placeholder for name, table in self.tables.items()}
        score_entries_(self.model, batches, self.tables, score, seed=self.seed, progress=progress)
        self.cut_due({name: table.scores() for name, table in self.tables.items()}, at_least=0)
        return self.tickets_so_far

    def cut_due(self, scores: Scores, *, at_least: int) -> None:
        for budget in self.open_budgets():
            num_kept = entries_within(self._without_means(budget), scores, num_entries=self.num_entries)
            assert num_kept is not None, "with at_least = 0 only bytes of an empty index could be too many"
            self.cut(budget, top_entries(scores, num_kept))

    def kept_values(self, name: str, mask: Tensor) -> Tensor:
        return self.tables[name].differences()[mask]

    def _without_means(self, budget: Budget) -> Budget:
        """What the budget leaves for kept entries."""
        if self.placeholder == "zeros":
            return budget
        values = sum(table.placeholder.numel() for table in self.tables.values())
        starts = sum(len(table.placeholder) for table in self.tables.values())
        cost: int | Fraction = values
        if budget.in_bytes:
            cost = values * BYTES_PER_VALUE + starts * FIELD_START_BYTES
        elif budget.unit == "share":
            cost = Fraction(values, self.num_entries)
        if budget.amount <= cost:
            raise BudgetError(
                f"budget {budget} is not above the {values:,} values of the fields' mean vectors. Raise it, or use "
                'placeholder = "zeros"',
                budget=budget.text,
            )
        return replace(budget, amount=budget.amount - cost)
