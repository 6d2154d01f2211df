"""Projected gradient descent: train, and every so often project all tables together onto an L1 ball that shrinks.

After a warm-up the radius follows a plan of kept entries; a budget's ticket is cut at the first projection that leaves
no more. The history says how many seconds an epoch's projections took.
"""

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import torch

from thresher.baselines.l1_projection import L1ProjectionEmbedding, project_l1_ball, radius_keeping
from thresher.embeddings.method_registry import method_name
from thresher.errors import AttachError, ConfigError
from thresher.search.mask_judge import PressingJudge, run_mask_search
from thresher.search.plan import Plan
from thresher.search.task import SearchTask, register_search
from thresher.search.ticket import MaskTicket
from thresher.training.metrics import Metrics
from thresher.training.optimizers import build_optimizer

STAGE = "projection search"


@register_search("projection")
def search_projections(task: SearchTask) -> Sequence[MaskTicket]:
    """Train and project; a ticket for each budget, largest first."""
    tables = {name: part for name, part in task.model.named_modules() if isinstance(part, L1ProjectionEmbedding)}
    if not tables:
        raise AttachError("the model has no table to project; build it with L1ProjectionConfig")
    config = next(iter(tables.values())).config
    if any(table.config != config for table in tables.values()):
        raise ConfigError("the model's tables have different settings of L1 projection; give all the same")
    judge = Projecting(task, tables, every=config.projection_steps or len(task.data.train))
    optimizer = build_optimizer(task.model, task.config.optimizer)
    return run_mask_search(task, optimizer, judge, stage=STAGE, table_config=config)


class Projecting(PressingJudge):
    """Projects at regular steps onto the ball whose radius leaves what the plan asks for."""

    def __init__(self, task: SearchTask, tables: Mapping[str, L1ProjectionEmbedding], *, every: int) -> None:
        method = method_name(next(iter(tables.values())).config)
        super().__init__(task, tables, method=method, every=every)
        self.tables, self.seconds = tables, 0.0
        self.plan = Plan(self.cutter.num_entries, self.cutter.smallest, self.schedule.plan_steps)

    @torch.no_grad()
    def press(self, pressed_steps: int) -> None:
        started = perf_counter()
        num_kept = self.plan.num_kept(pressed_steps)
        scores = {name: table.scores() for name, table in self.tables.items()}
        for table in self.tables.values():
            table.weight[~table.seen] = 0
        values = torch.cat([table.weight.reshape(-1) for table in self.tables.values()])
        values = project_l1_ball(values, radius_keeping(values, num_kept))
        for table, part in zip(
            self.tables.values(), torch.split(values, [t.weight.numel() for t in self.tables.values()]), strict=True
        ):
            table.weight.copy_(part.view_as(table.weight))
        self.seconds += perf_counter() - started
        self.num_kept = int(values.count_nonzero())
        self.cut_due(scores, at_least=0 if self.at_end else num_kept)

    def after_epoch(self, epoch: int, metrics: Metrics) -> Mapping[str, Any]:
        seconds, self.seconds = self.seconds, 0.0
        return {**super().after_epoch(epoch, metrics), "projection_seconds": seconds}
