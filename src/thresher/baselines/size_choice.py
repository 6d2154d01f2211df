"""From learned choices to tickets: the likeliest sizes, and less where a budget asks for it.

    maximise Σ_g Σ_c p_gc · min(size_g, d_c)   subject to   tables and projections of those sizes ≤ budget

Each group gets its likeliest size. If that is too much, sizes give way where the least is lost per parameter saved:
what a size is worth to a group are the dimensions it would have used, on average over its choices. Lagrange's
multiplier by bisection, then whatever still fits is given back, best first.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from thresher.baselines.candidate_sizes import CandidateSizesEmbedding
from thresher.embeddings.base import BYTES_PER_VALUE
from thresher.embeddings.method_registry import method_name
from thresher.errors import BudgetError
from thresher.search.budget import Budget
from thresher.search.size_ticket import SizeTicket, TableSizes
from thresher.search.task import SearchTask
from thresher.search.ticket import Provenance

Floats = npt.NDArray[np.float64]
Choice = npt.NDArray[np.int64]  # of each group, over all tables, which of its candidates
BISECTIONS = 60


@dataclass(frozen=True)
class SizeDeriver:
    """Cuts size tickets over all tables of a model together."""

    task: SearchTask
    tables: Mapping[str, CandidateSizesEmbedding]

    def __post_init__(self) -> None:
        for budget in self.task.budgets:
            least = self._num_parameters(np.zeros(self._num_groups, np.int64))
            if least > self._limit(budget):
                raise BudgetError(
                    f"budget {budget} is below the {least:,} parameters of the smallest candidate sizes; raise it, or "
                    "search among smaller candidate_sizes",
                    budget=budget.text,
                )

    def derive(self, initial_state: Mapping[str, Tensor], *, step: int, epoch: int) -> list[SizeTicket]:
        """A ticket for each budget from the present choices, largest first."""
        tickets = []
        for budget in self.task.budgets:
            chosen = self._by_table(self.choose(self._limit(budget)))
            final = self.task.model.state_dict()
            initial_states = self._fixed_state(chosen, initial_state)
            tables = {
                name: TableSizes(table.embedding_dim, chosen[name], table.runs) for name, table in self.tables.items()
            }
            method = method_name(next(iter(self.tables.values())).config)
            ticket = SizeTicket(
                budget=budget,
                tables=tables,
                initial=initial_states,
                final=self._fixed_state(chosen, final),
                num_parameters=sum(table.fixed(chosen[name]).num_parameters() for name, table in self.tables.items()),
                provenance=Provenance(method=method, seed=self.task.seed, step=step, epoch=epoch),
            )
            tickets.append(ticket)
            self.task.save(ticket)
        return sorted(tickets, key=lambda ticket: -ticket.num_parameters)

    def choose(self, limit: int) -> Choice:
        """The candidates worth most that together have at most `limit` parameters."""
        widest = max(len(table.config.candidate_sizes) for table in self.tables.values())
        values = np.concatenate([_padded(_size_values(table), widest, -np.inf) for table in self.tables.values()])
        costs = np.concatenate([_padded(_table_costs(table), widest, np.inf) for table in self.tables.values()])
        return choose_within(values, costs, limit, self._num_parameters)

    @property
    def _num_groups(self) -> int:
        return sum(len(table.size_logits) for table in self.tables.values())

    def _limit(self, budget: Budget) -> int:
        """The parameters `budget` allows."""
        if budget.unit == "bytes":
            runs = sum(table.runs.storage_bytes for table in self.tables.values())
            return (int(budget.amount) - runs) // BYTES_PER_VALUE
        return budget.max_entries(sum(table.num_features * table.embedding_dim for table in self.tables.values()))

    def _by_table(self, choice: Choice) -> dict[str, tuple[int, ...]]:
        sizes, first = {}, 0
        for name, table in self.tables.items():
            part = choice[first : first + len(table.size_logits)]
            sizes[name] = tuple(table.config.candidate_sizes[at] for at in part.tolist())
            first += len(table.size_logits)
        return sizes

    def _num_parameters(self, choice: Choice) -> int:
        """Tables and the projections of the sizes in use."""
        total = 0
        for name, sizes in self._by_table(choice).items():
            table = self.tables[name]
            total += sum(count * size for count, size in zip(table.runs.group_sizes, sizes, strict=True))
            total += sum(size * table.embedding_dim for size in set(sizes) if size < table.embedding_dim)
        return total

    def _fixed_state(self, chosen: Mapping[str, Sequence[int]], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A state of the searched model as one of a model whose tables have the chosen sizes."""
        owned = tuple(f"{name}." for name in self.tables)
        found = {key: value.clone() for key, value in state.items() if not key.startswith(owned)}
        for name, table in self.tables.items():
            copied = deepcopy(table)
            inside = {key: value for key, value in state.items() if key.startswith(f"{name}.")}
            copied.load_state_dict({key.removeprefix(f"{name}."): value for key, value in inside.items()})
            fixed = copied.fixed(chosen[name]).state_dict()
            found |= {f"{name}.{key}": value for key, value in fixed.items()}
        return found


def choose_within(values: Floats, costs: Floats, limit: int, total: Callable[[Choice], int]) -> Choice:
    """The choice `[G]` of most value whose `total` is within `limit`; the first candidate costs least."""

    def at(price: float) -> Choice:
        found: Choice = np.argmax(values - price * np.where(np.isfinite(costs), costs, 0), axis=1)
        return found

    choice = at(0.0)
    if total(choice) <= limit:
        return choice
    low, high = 0.0, 1.0
    while total(at(high)) > limit and high < 1e12:
        high *= 4
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if total(at(middle)) <= limit else (middle, high)
    choice = at(high)
    if total(choice) > limit:  # projections in use may stand in the way of any price
        choice = np.zeros_like(choice)
    return give_back(choice, values, costs, limit, total)


def give_back(choice: Choice, values: Floats, costs: Floats, limit: int, total: Callable[[Choice], int]) -> Choice:
    """Raise groups to candidates of more value, most per parameter first, while they fit."""
    groups = np.arange(len(choice))
    while True:
        gains = values - values[groups, choice][:, None]
        prices = np.maximum(costs - costs[groups, choice][:, None], 1e-9)
        wanted = np.argwhere((gains > 0) & np.isfinite(prices))
        ratios = -(gains / prices)[tuple(wanted.T)]
        for group, candidate in wanted[np.argsort(ratios, kind="stable")].tolist():
            raised = choice.copy()
            raised[group] = candidate
            if total(raised) <= limit:
                choice = raised
                break
        else:
            return choice


def _size_values(table: CandidateSizesEmbedding) -> Floats:
    """What each candidate is worth to each group, `[G, C]`; −∞ beyond its likeliest."""
    shares = torch.softmax(table.size_logits.detach().double(), dim=1).cpu().numpy()  # [G, C]
    sizes = np.asarray(table.config.candidate_sizes)
    values = shares @ np.minimum(sizes[:, None], sizes[None, :])
    beyond = np.arange(len(sizes)) > shares.argmax(axis=1)[:, None]
    return np.where(beyond, -np.inf, values)


def _table_costs(table: CandidateSizesEmbedding) -> Floats:
    return np.outer(table.runs.group_sizes, table.config.candidate_sizes).astype(np.float64)


def _padded(array: Floats, width: int, value: float) -> Floats:
    return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=value)
