"""The search of NIS: sizes are drawn from a policy, tried and rewarded.

After a warm-up of the whole table, each training step trains a drawn choice. Then several choices are compared on one
validation batch, without gradients, and the budget's policy moves towards those with the higher reward:

    reward = −logloss − cost_weight · max(0, entries / budget − 1)

relative to the mean of the other choices on that batch (REINFORCE with a leave-one-out baseline). All budgets share the
table and take turns, so one search serves all of them. At the end the most likely sizes within each budget are kept.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from thresher.baselines.bilevel import EndlessBatches
from thresher.baselines.nis import NisEmbedding, SizePolicy
from thresher.compact.layouts import compact_bytes
from thresher.embeddings.base import BYTES_PER_VALUE
from thresher.errors import AttachError
from thresher.search.budget import Budget
from thresher.search.controller import MaskSearchController, TableSearch, find_tables
from thresher.search.find_tickets import SearchTask, register_search
from thresher.search.schedule import Schedule
from thresher.search.ticket import MaskTicket
from thresher.training.checkpoint import Checkpoint, load_optimizer_, packed_optimizer
from thresher.training.loop import lone_row, mean_loss

if TYPE_CHECKING:
    from thresher.data.batches.batches import Batch


class NisSearch(TableSearch):
    """After each training step trains the policy of one budget, and draws the next choice from it."""

    tables: Mapping[str, NisEmbedding]

    def __init__(self, task: SearchTask, tables: Mapping[str, NisEmbedding], schedule: Schedule) -> None:
        super().__init__(task, tables, schedule)
        self.model = task.model
        ((self.name, self.table),) = tables.items()
        self.policies = {budget: SizePolicy(self.table, self.cutter.planned[budget]) for budget in task.budgets}
        rates = task.config.optimizer
        self.optimizer = torch.optim.Adam(
            [policy.logits for policy in self.policies.values()],
            lr=rates.choice_learning_rate,
            weight_decay=rates.choice_decay,
        )
        self.batches = EndlessBatches(task.data.choices or task.data.validation)

    def prune(self, steps: int) -> None:
        policy = list(self.policies.values())[steps % len(self.policies)]
        self._train_policy(policy)
        policy.activate_(policy.sample())
        self.num_kept = self.table.num_parameters()
        if self.at_end:
            for budget in self.cutter.open_budgets():
                mask = self._best_mask(budget, self.policies[budget])
                self.cutter.cut(budget, {self.name: mask}, step=self.current_step, epoch=self.epoch)

    def _train_policy(self, policy: SizePolicy) -> None:
        num_samples = self.table.config.num_samples
        choices = [policy.sample() for _ in range(num_samples)]
        batch = self.batches.next().to(next(self.model.parameters()).device)
        rewards = torch.tensor([self._reward(policy, choice, batch) for choice in choices])
        advantages = (rewards - rewards.mean()) * num_samples / (num_samples - 1)
        log_probabilities = torch.stack([policy.log_probability(choice) for choice in choices])
        self.optimizer.zero_grad(set_to_none=True)  # the other policies do not move
        torch.autograd.backward(-(advantages * log_probabilities).mean())
        self.optimizer.step()

    @torch.no_grad()
    def _reward(self, policy: SizePolicy, choice: Tensor, batch: "Batch") -> float:
        policy.activate_(choice)
        with lone_row(self.model, batch):
            loss, _ = mean_loss(self.model(*batch.inputs), batch)
        excess = max(0.0, policy.cost(choice) / policy.limit - 1)
        return -float(loss) - self.table.config.cost_weight * excess

    def _best_mask(self, budget: Budget, policy: SizePolicy) -> Tensor:
        """The mask of a policy's best choice. Bytes depend on the mask, so the limit is lowered until they fit."""
        if budget.unit == "bytes":
            policy.limit = int(budget.amount) // BYTES_PER_VALUE
        while True:
            policy.activate_(policy.best())
            mask = self.table.mask()
            if budget.unit != "bytes" or policy.limit == 0 or compact_bytes(mask) <= budget.amount:
                return mask
            policy.limit = policy.limit * 19 // 20

    def position(self) -> dict[str, Any]:
        optimizer = packed_optimizer(self.optimizer).metadata
        return super().position() | {"batches": self.batches.position(), "optimizer": optimizer}

    def tensors(self) -> dict[str, Tensor]:
        logits = {f"logits/{at}": policy.logits.detach() for at, policy in enumerate(self.policies.values())}
        moments = {f"choices/{key}": value for key, value in packed_optimizer(self.optimizer).tensors.items()}
        return super().tensors() | logits | moments

    def restore(
        self, position: Mapping[str, Any], tensors: Mapping[str, Tensor], tickets: Iterable[MaskTicket]
    ) -> None:
        super().restore(position, tensors, tickets)
        self.batches.go_to(*position["batches"])
        with torch.no_grad():
            for at, policy in enumerate(self.policies.values()):
                policy.logits.copy_(tensors[f"logits/{at}"])
        load_optimizer_(self.optimizer, position["optimizer"], Checkpoint(tensors=dict(tensors)).under("choices"))


@register_search("controller")
class NisController(MaskSearchController):
    """Trains a policy for each budget."""

    stage = "controller search"

    def __init__(self, task: SearchTask) -> None:
        tables = find_tables(task.model, NisEmbedding)
        if len(tables) > 1:
            raise AttachError(f"NIS searches a model with one table; this model has {len(tables)}")
        schedule = replace(Schedule.of(task.config, len(task.data.train)), every=1)
        super().__init__(task, NisSearch(task, tables, schedule))
