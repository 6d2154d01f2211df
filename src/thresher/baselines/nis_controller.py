"""The controller: sizes are drawn, tried, rewarded, and drawn again; in the end the likeliest within each budget stay.

After a warm-up of the whole table, each training step trains a drawn choice. Then several choices are compared on one
validation batch, without gradients, and each budget's policy moves towards those with more reward:

    reward = −logloss − cost_weight · max(0, entries / budget − 1)

measured against the mean of the other choices on that batch (REINFORCE with a leave-one-out baseline). All budgets
share the table and take turns, so one search serves them all.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from thresher.baselines.endless_batches import EndlessBatches
from thresher.baselines.nis import NisEmbedding
from thresher.baselines.nis_policy import SizePolicy
from thresher.compact.layouts import compact_bytes
from thresher.embeddings.base import BYTES_PER_VALUE
from thresher.embeddings.method_registry import method_name
from thresher.errors import AttachError
from thresher.search.budget import Budget
from thresher.search.mask_judge import PressingJudge, run_mask_search
from thresher.search.task import SearchTask, register_search
from thresher.search.ticket import MaskTicket
from thresher.training.checkpoint import Checkpoint, load_optimizer_, packed_optimizer
from thresher.training.loop import lone_row, mean_loss
from thresher.training.optimizers import build_optimizer

if TYPE_CHECKING:
    from thresher.data.batches.batches import Batch

STAGE = "controller search"


@register_search("controller")
def search_with_controller(task: SearchTask) -> Sequence[MaskTicket]:
    """Teach a policy for each budget; a ticket for each, largest first, with at most the budget's entries."""
    tables = {name: module for name, module in task.model.named_modules() if isinstance(module, NisEmbedding)}
    if len(tables) != 1:
        raise AttachError(f"NIS searches a model with one table; this one has {len(tables)}; build it with NisConfig")
    judge = ControllerJudge(task, *tables.items())
    optimizer = build_optimizer(task.model, task.config.optimizer)
    return run_mask_search(task, optimizer, judge, stage=STAGE, table_config=judge.table.config)


class ControllerJudge(PressingJudge):
    """After each training step of a drawn choice teaches one budget's policy, and draws the next choice from it."""

    def __init__(self, task: SearchTask, named: tuple[str, NisEmbedding]) -> None:
        self.name, self.table = named
        super().__init__(task, dict([named]), method=method_name(self.table.config), every=1)
        self.policies = [SizePolicy(self.table, self.cutter.least_entries(budget)) for budget in task.budgets]
        rates = task.config.optimizer
        self.optimizer = torch.optim.Adam(
            [policy.logits for policy in self.policies], lr=rates.choice_learning_rate, weight_decay=rates.choice_decay
        )
        self.batches = EndlessBatches(task.data.choices or task.data.validation)

    def press(self, pressed_steps: int) -> None:
        policy = self.policies[pressed_steps % len(self.policies)]
        self._teach(policy)
        policy.activate_(policy.sample())
        self.num_kept = self.table.num_parameters()
        if self.at_end:
            self._cut_all()

    def _teach(self, policy: SizePolicy) -> None:
        num_samples = self.table.config.num_samples
        choices = [policy.sample() for _ in range(num_samples)]
        batch = self.batches.next().to(next(self.task.model.parameters()).device)
        rewards = torch.tensor([self._reward(policy, choice, batch) for choice in choices])
        advantages = (rewards - rewards.mean()) * num_samples / (num_samples - 1)
        log_probabilities = torch.stack([policy.log_probability(choice) for choice in choices])
        self.optimizer.zero_grad(set_to_none=True)  # policies whose turn it is not stay where they are
        torch.autograd.backward(-(advantages * log_probabilities).mean())
        self.optimizer.step()

    @torch.no_grad()
    def _reward(self, policy: SizePolicy, choice: Tensor, batch: "Batch") -> float:
        policy.activate_(choice)
        with lone_row(self.task.model, batch):
            loss, _ = mean_loss(self.task.model(*batch.inputs), batch)
        excess = max(0.0, policy.cost(choice) / policy.limit - 1)
        return -float(loss) - self.table.config.cost_weight * excess

    def _cut_all(self) -> None:
        for budget in self.cutter.open_budgets():
            policy = self.policies[self.task.budgets.index(budget)]
            mask = self._likeliest_within(budget, policy)
            self.cutter.keep(budget, {self.name: mask}, step=self.step, epoch=self.epoch)

    def _likeliest_within(self, budget: Budget, policy: SizePolicy) -> Tensor:
        """The mask of a policy's best choice. What an entry takes in bytes depends on the mask, so masks are tried."""
        if budget.unit == "bytes":
            policy.limit = int(budget.amount) // BYTES_PER_VALUE
        while True:
            policy.activate_(policy.best())
            mask = self.table.mask()
            if budget.unit != "bytes" or policy.limit == 0 or compact_bytes(mask) <= budget.amount:
                return mask
            policy.limit = policy.limit * 19 // 20

    def facts(self) -> dict[str, Any]:
        optimizer = packed_optimizer(self.optimizer).facts
        return {**super().facts(), "batches": self.batches.position(), "optimizer": optimizer}

    def tensors(self) -> dict[str, Tensor]:
        logits = {f"logits/{at}": policy.logits.detach() for at, policy in enumerate(self.policies)}
        moments = {f"choices/{key}": value for key, value in packed_optimizer(self.optimizer).tensors.items()}
        return super().tensors() | logits | moments

    def load(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        super().load(facts, tensors)
        self.batches.go_to(*facts["batches"])
        with torch.no_grad():
            for at, policy in enumerate(self.policies):
                policy.logits.copy_(tensors[f"logits/{at}"])
        load_optimizer_(self.optimizer, facts["optimizer"], Checkpoint(tensors=dict(tensors)).under("choices"))
