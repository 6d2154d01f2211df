"""Size tickets from learned probabilities: the most likely sizes, smaller ones if the budget requires it.

    maximise Σ_g Σ_c p_gc · min(size_g, d_c)   subject to   tables and projections of those sizes ≤ budget

Sizes are reduced where the least value is lost per parameter saved; the value of a size to a group is the expected
number of dimensions it uses. Lagrange multiplier by bisection; then groups are raised again while they fit, best first.
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
from thresher.search.find_tickets import SearchTask
from thresher.search.ticket import Provenance, SizeTicket, TableSizes

Floats = npt.NDArray[np.float64]
Choice = npt.NDArray[np.int64]
"""For each group, over all tables, the index of its candidate."""
BISECTIONS = 60


@dataclass(frozen=True)
class SizeTickets:
    """Cuts size tickets over all tables of a model together."""

    task: SearchTask
    tables: Mapping[str, CandidateSizesEmbedding]

    def __post_init__(self) -> None:
        least = self._num_parameters(np.zeros(sum(len(table.size_logits) for table in self.tables.values()), np.int64))
        for budget in self.task.budgets:
            if least > self._limit(budget):
                message = f"budget {budget} is below the {least:,} parameters of the smallest candidate sizes. Raise it"
                raise BudgetError(message, budget=budget.text)

    def cut_all(self, initial_state: Mapping[str, Tensor], *, step: int, epoch: int) -> list[SizeTicket]:
        """A ticket for each budget from the present probabilities, largest first."""
        method = method_name(next(iter(self.tables.values())).config)
        tickets = []
        for budget in self.task.budgets:
            choice = self.choose(self._limit(budget))
            sizes = self._by_table(choice)
            ticket = SizeTicket(
                budget=budget,
                tables={name: TableSizes(t.embedding_dim, sizes[name], t.runs) for name, t in self.tables.items()},
                initial=self._fixed_state(sizes, initial_state),
                final=self._fixed_state(sizes, self.task.model.state_dict()),
                num_parameters=self._num_parameters(choice),
                provenance=Provenance(method=method, seed=self.task.seed, step=step, epoch=epoch),
            )
            tickets.append(ticket)
            self.task.save(ticket)
        return sorted(tickets, key=lambda ticket: -ticket.num_parameters)

    def choose(self, limit: int) -> Choice:
        """The candidates of highest value with at most `limit` parameters together."""
        tables = list(self.tables.values())
        widest = max(len(table.config.candidate_sizes) for table in tables)
        sizes = [np.outer(table.runs.group_sizes, table.config.candidate_sizes).astype(np.float64) for table in tables]
        values = np.concatenate([_padded(_size_values(table), widest, -np.inf) for table in tables])
        costs = np.concatenate([_padded(size, widest, np.inf) for size in sizes])
        return choose_within(values, costs, limit, self._num_parameters)

    def _limit(self, budget: Budget) -> int:
        """The number of parameters that `budget` allows."""
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
        """Parameters of tables and of the projections in use."""
        total = 0
        for name, sizes in self._by_table(choice).items():
            table = self.tables[name]
            total += sum(count * size for count, size in zip(table.runs.group_sizes, sizes, strict=True))
            total += sum(size * table.embedding_dim for size in set(sizes) if size < table.embedding_dim)
        return total

    def _fixed_state(self, chosen: Mapping[str, Sequence[int]], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Convert a state of the searched model to one of a model whose tables have the chosen sizes."""
        owned = tuple(f"{name}." for name in self.tables)
        found = {key: value.clone() for key, value in state.items() if not key.startswith(owned)}
        for name, table in self.tables.items():
            copied = deepcopy(table)
            inside = {key: value for key, value in state.items() if key.startswith(f"{name}.")}
            copied.load_state_dict({key.removeprefix(f"{name}."): value for key, value in inside.items()})
            found |= {f"{name}.{key}": value for key, value in copied.fixed(chosen[name]).state_dict().items()}
        return found


def choose_within(values: Floats, costs: Floats, limit: int, total: Callable[[Choice], int]) -> Choice:
    """The choice `[G]` of highest value whose `total` is within `limit`; the first candidate costs least."""

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
    if total(choice) > limit:  # projections may exceed the limit at any price
        choice = np.zeros_like(choice)
    return raise_within(choice, values, costs, limit, total)


def raise_within(choice: Choice, values: Floats, costs: Floats, limit: int, total: Callable[[Choice], int]) -> Choice:
    """Raise groups to candidates of higher value, most value per parameter first, while `total` is within `limit`."""
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
    """The value of each candidate to each group, `[G, C]`; −∞ above the most likely one."""
    shares = torch.softmax(table.size_logits.detach().double(), dim=1).cpu().numpy()  # [G, C]
    sizes = np.asarray(table.config.candidate_sizes)
    values = shares @ np.minimum(sizes[:, None], sizes[None, :])
    return np.where(np.arange(len(sizes)) > shares.argmax(axis=1)[:, None], -np.inf, values)


def _padded(array: Floats, width: int, value: float) -> Floats:
    return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=value)
