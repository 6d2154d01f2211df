"""ShardedSearcher: a search over the shards of TorchRec's DistributedModelParallel, between steps of its optimizers.

The kernels of sharded tables look up, pool and update in one call, so that no threshold can act inside them. Instead,
the tables hold thresholded values. At regular steps, one threshold for all shards together rises so that the planned
number of largest |v| remains; its increase is subtracted from their magnitudes. Pruned entries stay 0: their updates
are undone before each lookup. So the model computes with `sign(v) · relu(|v| − threshold)` throughout, as in PEP with
granularity global.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributed._shard.sharded_tensor.api import ShardedTensor

from thresher._internal.mapped_tensors import new_zeros
from thresher._internal.processes import Processes
from thresher.embeddings.pep import PepEmbedding
from thresher.errors import AttachError, BudgetError
from thresher.integrations.sharding.global_cut import global_top_masks
from thresher.integrations.sharding.masked_lookups import mask_lookups
from thresher.integrations.sharding.shards import sharded_tables, whole_table
from thresher.search.budget import Budget, parse_budgets
from thresher.search.controller import SteppedSearch
from thresher.search.mask_search import Scores
from thresher.search.schedule import Plan, Schedule
from thresher.search.ticket import MaskTicket, Weights

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class ShardedSearcher(SteppedSearch):
    """Prunes the sharded tables of a model towards a list of budgets; every process must create and step its own.

    Tickets are those of the unsharded model, equal in all processes. A process holds its shards twice (for the
    rewind), their masks (one byte per entry), and at a cut those of all searched tables. Tickets hold sharded tables
    that are not searched, too: every process gathers them whole, before the search and at each cut.

    Args:
        model: what `DistributedModelParallel` returned; tickets rewind to its present state.
        budgets: sizes over all searched tables together: parameters, shares or shares of rows.
        steps: steps of the whole search; `warmup_steps` and `every` are as for `Searcher`.
        where: a pattern of table names (`"*.embedding_bags.user_*"`); by default all.
        min_embedding_dim: minimum width of a table.
        on_ticket: called in the first process only.
        group: the processes that hold the shards, by default all of torch.distributed.
    """

    def __init__(
        self,
        model: nn.Module,
        budgets: str | int | Budget | Iterable[str | int | Budget],
        *,
        steps: int,
        warmup_steps: int | None = None,
        every: int | None = None,
        where: str | None = None,
        min_embedding_dim: int = 2,
        seed: int = 0,
        on_ticket: Callable[[MaskTicket], None] | None = None,
        group: "ProcessGroup | None" = None,
    ) -> None:
        schedule = Schedule.of_steps(steps, warmup_steps, every)
        schedule.check_pruning()
        if attached := [name for name, module in model.named_modules() if isinstance(module, PepEmbedding)]:
            raise AttachError(
                f"{attached[0]} is attached, and other tables are sharded. One search cannot prune both: call detach_ "
                "before DistributedModelParallel"
            )
        self.processes = Processes.of(group)
        first = self.processes is None or self.processes.is_first
        self.tables = sharded_tables(model, where, min_embedding_dim, first=first)
        self.shards = [shard for table in self.tables.values() for shard in table.shards]
        self._shapes = {name: table.shape for name, table in self.tables.items()}
        super().__init__(
            model,
            {name: torch.empty(shape, device="meta") for name, shape in self._shapes.items()},
            _without_bytes(parse_budgets(budgets)),
            num_entries=sum(num_rows * width for num_rows, width in self._shapes.values()),
            method="sharded-magnitude",
            seed=seed,
            on_ticket=on_ticket if first else None,
            schedule=schedule,
        )
        self.plan = Plan(self.num_entries, self.smallest, schedule.plan_steps)
        self._hooks = mask_lookups(model, self.shards)

    @torch.no_grad()
    def prune(self, steps: int) -> None:
        for shard in self.shards:
            shard.mask_()
        for table in self.tables.values():
            if table.replicated and self.processes is not None:
                self.processes.unite_(table.shards[0].seen)
        self.num_kept = self.plan.num_kept(steps)
        self.cut_due({}, at_least=0 if self.at_end else self.num_kept)
        masks, threshold = self._local_cut(self.num_kept)
        for shard, mask in zip(self.shards, masks, strict=True):
            shard.prune_(mask, threshold)
        if self.at_end:
            for hook in self._hooks:
                hook.remove()

    def _local_cut(self, num_kept: int) -> tuple[list[Tensor], float]:
        return global_top_masks(self.shards, self._shapes, num_kept, self._add_up)

    def _add_up(self, values: Tensor) -> Tensor:
        return values if self.processes is None else self.processes.total(values)

    def kept_masks(self, scores: Scores, num_kept: int) -> Mapping[str, Tensor]:
        masks = {name: new_zeros(*shape, dtype=torch.bool) for name, shape in self._shapes.items()}
        for shard, mask in zip(self.shards, self._local_cut(num_kept)[0], strict=True):
            masks[shard.table][shard.rows, shard.columns] = mask
        if self.processes is not None:
            for mask in masks.values():
                self.processes.unite_(mask)
        return masks

    def row_norms(self, name: str) -> Tensor:
        squares = torch.zeros(self._shapes[name][0], 2, dtype=torch.float64)  # of the row, and whether it was seen
        for shard in self.tables[name].shards:
            if shard.counted:
                squares[shard.rows, 0] += shard.weight.double().square().sum(1).cpu()
                squares[shard.rows, 1] += shard.seen.cpu()
        squares = self._add_up(squares)
        return squares[:, 0].sqrt().float().masked_fill(squares[:, 1] == 0, -torch.inf)

    def kept_values(self, name: str, mask: Tensor) -> Tensor:
        return self._gathered(name, mask, "weight")

    def model_state(self) -> Mapping[str, Tensor]:
        """All tensors but the searched tables, whose shards keep their own initial values; other tables whole."""
        owned = {f"{name}.weight" for name in self.tables}
        state = {name: value for name, value in self.model.state_dict().items() if name not in owned}
        return {
            name: whole_table(value, self._add_up) if isinstance(value, ShardedTensor) else value
            for name, value in state.items()
            if isinstance(value, Tensor)
        }

    def present_weights(self, masks: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> Weights:
        return Weights(values, _copies(self.model_state()))

    def initial_weights(self, masks: Mapping[str, Tensor]) -> Weights:
        return Weights(
            {name: self._gathered(name, mask, "initial") for name, mask in masks.items()}, _copies(self.initial_state)
        )

    @torch.no_grad()
    def _gathered(self, name: str, mask: Tensor, source: str) -> Tensor:
        """The entries of `mask` `[N, D]` of all shards of a table, `[K]` in row-major order, in every process."""
        positions, width = mask.reshape(-1).nonzero().squeeze(1), self._shapes[name][1]
        values = torch.zeros(len(positions))
        for shard in self.tables[name].shards:
            if shard.counted:
                rows, columns = mask[shard.rows, shard.columns].nonzero(as_tuple=True)
                own = (rows + shard.first_row) * width + columns + shard.first_column
                found: Tensor = getattr(shard, source)
                values[torch.searchsorted(positions, own)] = found.cpu()[rows, columns].float()
        return self._add_up(values)


def _copies(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in state.items()}


def _without_bytes(budgets: tuple[Budget, ...]) -> tuple[Budget, ...]:
    for budget in budgets:
        if budget.in_bytes:
            raise BudgetError(
                f"budget {budget} is in bytes, which depend on the whole mask. A sharded search supports parameters "
                "(30k), shares (2%) and rows (10%rows)",
                budget=budget.text,
            )
    return budgets
