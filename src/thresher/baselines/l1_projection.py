"""L1-ball projection: the convex relaxation that §4.1 of the PEP paper rejects for its cost.

    V ← argmin over ‖U‖₁ ≤ radius of ‖U − V‖₂   =   sign(V) · relu(|V| − θ)

after each epoch, or every few steps, of ordinary training; `θ` is computed from the sorted magnitudes (Duchi,
Shalev-Shwartz, Singer, Chandra, "Efficient projections onto the l1-ball", 2008). The radius is chosen so that as many
entries remain as planned. The search's history holds the seconds spent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from thresher.baselines.magnitude import SeenTable
from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig
from thresher.embeddings.method_registry import register_embedding
from thresher.errors import ConfigError
from thresher.search.controller import MaskSearchController, TableSearch, find_tables
from thresher.search.find_tickets import SearchTask, register_search
from thresher.search.schedule import Plan, Schedule


@dataclass(frozen=True, kw_only=True)
class L1ProjectionConfig(EmbeddingConfig):
    """Settings of the projection."""

    projection_steps: int | None = None
    """Training steps between two projections. Absent: an epoch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.projection_steps is not None and self.projection_steps < 1:
            raise ConfigError(f"projection_steps is {self.projection_steps}; it must be at least 1")

    @classmethod
    def grid(cls) -> Sequence[Self]:
        return [*(cls(embedding_dim=width, projection_steps=100) for width in (128, 64)), cls(embedding_dim=128)]


@register_embedding("l1-projection", L1ProjectionConfig)
class L1ProjectionEmbedding(SeenTable):
    """`v_i = V[i]`: a plain table, projected by the search."""

    search_algorithm = "projection"

    def __init__(
        self, field_sizes: Sequence[int], config: L1ProjectionConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config)
        self.config = config

    def forward(self, ids: Tensor) -> Tensor:
        if self.training:
            self.seen[ids.long()] = True
        return functional.embedding(ids, self.weight)  # [..., D]

    def num_parameters(self) -> int:
        return int(self.weight.count_nonzero())

    def storage_bytes(self) -> int:
        """The search holds the whole table; a ticket saves bytes only after retraining."""
        return self.weight.numel() * BYTES_PER_VALUE


class ProjectionSearch(TableSearch):
    """Projects at regular steps onto the ball whose radius keeps as many entries as planned."""

    tables: Mapping[str, L1ProjectionEmbedding]

    def __init__(self, task: SearchTask, tables: Mapping[str, L1ProjectionEmbedding], schedule: Schedule) -> None:
        super().__init__(task, tables, schedule)
        self.seconds = 0.0
        self.plan = Plan(self.num_entries, self.smallest, schedule.plan_steps)

    @torch.no_grad()
    def prune(self, steps: int) -> None:
        started = perf_counter()
        num_kept, scores = self.plan.num_kept(steps), self.scores()
        weights = [table.weight for table in self.tables.values()]
        for table in self.tables.values():
            table.weight[~table.seen] = 0
        values = torch.cat([weight.reshape(-1) for weight in weights])
        values = project_l1_ball(values, radius_keeping(values, num_kept))
        for weight, part in zip(weights, torch.split(values, [weight.numel() for weight in weights]), strict=True):
            weight.copy_(part.view_as(weight))
        self.seconds += perf_counter() - started
        self.num_kept = int(values.count_nonzero())
        self.cut_due(scores, at_least=0 if self.at_end else num_kept)

    def record(self) -> dict[str, Any]:
        seconds, self.seconds = self.seconds, 0.0
        return super().record() | {"projection_seconds": seconds}


@register_search("projection", units=("rows", "bundle"), shared=True)
class ProjectionController(MaskSearchController):
    """Trains and projects all tables together onto a shrinking L1 ball."""

    stage = "projection search"

    def __init__(self, task: SearchTask) -> None:
        tables = find_tables(task.model, L1ProjectionEmbedding)
        every = next(iter(tables.values())).config.projection_steps or len(task.data.train)
        schedule = replace(task.schedule(table.weight for table in tables.values()), every=every)
        super().__init__(task, ProjectionSearch(task, tables, schedule))


def project_l1_ball(values: Tensor, radius: float) -> Tensor:
    """The point of the L1 ball of `radius` nearest to `values` `[n]`.

    >>> project_l1_ball(torch.tensor([3.0, -1.0, 0.5]), radius=2.0).tolist()
    [2.0, -0.0, 0.0]
    """
    magnitudes = values.abs().double()
    if float(magnitudes.sum()) <= radius:
        return values
    descending = torch.sort(magnitudes, descending=True).values
    ranks = torch.arange(1, len(values) + 1, dtype=torch.float64, device=values.device)
    thetas = (descending.cumsum(0) - radius) / ranks
    theta = thetas[max(1, int((descending > thetas).sum())) - 1]  # the largest entry remains, whatever the rounding
    return torch.sign(values) * (magnitudes - theta).clamp_min(0).to(values.dtype)


def radius_keeping(values: Tensor, num_kept: int) -> float:
    """The radius of the L1 ball onto which `values` `[n]` is projected with `num_kept` entries left."""
    if num_kept >= len(values):
        return float(values.abs().double().sum())
    magnitudes = values.abs().double()
    theta = torch.kthvalue(magnitudes, len(values) - num_kept).values
    return float((magnitudes - theta).clamp_min(0).sum())
