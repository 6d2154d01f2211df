"""NIS: a policy, trained by reward, chooses for each field how many features get a vector, and how wide.

    v_i = active[group of i] ⊙ V[i],   groups are popularity blocks inside fields, active ∈ {0, 1}

A field's features in order of popularity and its dimensions form a grid of blocks. `single`: one rectangle of the grid,
a number of features by a number of dimensions. `multiple`: a number of features for each slice of dimensions, so that
popular features get wide vectors and others narrow ones. Joglekar et al., "Neural input search for large scale
recommendation models" (2019). Dropped features are zeros and narrow ones are padded with zeros; the authors project.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.baselines.bilevel import EndlessBatches
from thresher.baselines.candidate_sizes import check_candidate_sizes
from thresher.baselines.size_choice import Choice, choose_within, raise_within
from thresher.compact.layouts import compact_bytes
from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig, FieldEmbedding, new_table
from thresher.embeddings.feature_groups import FeatureRuns, field_popularity_groups
from thresher.embeddings.method_registry import register_embedding
from thresher.errors import AttachError, ConfigError
from thresher.search.budget import Budget
from thresher.search.controller import MaskSearchController, TableSearch, find_tables
from thresher.search.find_tickets import SearchTask, register_search
from thresher.search.schedule import Schedule
from thresher.search.ticket import MaskTicket
from thresher.training.checkpoint import Checkpoint, pack_optimizer, unpack_optimizer_
from thresher.training.epoch import lone_row, mean_loss


@dataclass(frozen=True, kw_only=True)
class NisConfig(EmbeddingConfig):
    """The grid, and how choices are rewarded."""

    embedding_dim: int = 8
    """Width of the table, at least the largest of `candidate_sizes`."""
    mode: Literal["single", "multiple"] = "single"
    """`single`: one width per field. `multiple`: a number of popularity blocks for each slice of the dimensions."""
    candidate_sizes: tuple[int, ...] = (2, 4, 8)
    """Widths to choose from, ascending."""
    num_blocks: int = 4
    """Popularity blocks of about equal total count in each field."""
    num_samples: int = 4
    """Choices compared on each validation batch; each is rewarded relative to the others."""
    cost_weight: float = 0.1
    """Cost, in logloss, of exceeding the budget by 100 %."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_candidate_sizes(self.candidate_sizes, self.embedding_dim)
        if self.num_blocks < 1 or self.num_samples < 2 or self.cost_weight < 0:
            raise ConfigError("num_blocks must be at least 1, num_samples at least 2, and cost_weight 0 or more")

    @classmethod
    def grid(cls) -> Sequence[Self]:
        return [
            cls(candidate_sizes=(4, 8, 16), embedding_dim=16),
            cls(candidate_sizes=(4, 8, 16), embedding_dim=16, mode="multiple"),
            cls(candidate_sizes=(8, 16, 32), embedding_dim=32, mode="multiple"),
        ]


@register_embedding("nis", NisConfig, status="experimental")
class NisEmbedding(FieldEmbedding):
    """Ids `[...]` → rows whose inactive dimensions are 0 `[..., D]`."""

    search_algorithm = "controller"
    active: Tensor  # bool [G, D], set by the search
    group_of_feature: Tensor

    def __init__(
        self, field_sizes: Sequence[int], config: NisConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        if feature_counts is None:
            raise ConfigError("NIS orders features by popularity and needs feature_counts")
        groups = field_popularity_groups(field_sizes, feature_counts, config.num_blocks)
        self.group_sizes = FeatureRuns.of(groups, int(groups.max()) + 1).group_sizes
        # groups are numbered field by field, popular ones first
        first = [int(part.min()) for part in np.split(groups, np.cumsum(field_sizes)[:-1])]
        self.groups_of_field = [range(a, b) for a, b in zip(first, [*first[1:], len(self.group_sizes)], strict=True)]
        self.register_buffer("group_of_feature", torch.from_numpy(groups), persistent=False)
        self.weight = new_table(self.num_features, self.embedding_dim)
        self.register_buffer("active", torch.ones(len(self.group_sizes), self.embedding_dim, dtype=torch.bool))

    def forward(self, ids: Tensor) -> Tensor:
        return functional.embedding(ids, self.weight) * self.active[self.group_of_feature[ids.long()]]  # [..., D]

    def mask(self) -> Tensor:
        """The active entries, `[N, D]`."""
        return self.active[self.group_of_feature]

    def num_parameters(self) -> int:
        return sum(count * size for count, size in zip(self.group_sizes, self.active.sum(1).tolist(), strict=True))

    def storage_bytes(self) -> int:
        """The search holds the whole table, a bit per block of the grid, and the group of each feature (4 bytes)."""
        return (self.weight.numel() + self.num_features) * BYTES_PER_VALUE + -(-self.active.numel() // 8)


class SizePolicy:
    """Independent random choices of sizes within one budget, one softmax each, trained by REINFORCE.

    In `single` mode a field chooses one rectangle of blocks; in `multiple` mode each slice of a field's dimensions
    chooses how many of the field's popularity blocks have it. Option 0 keeps nothing. `limit` is in entries.
    """

    def __init__(self, table: NisEmbedding, limit: int) -> None:
        self.table, self.limit = table, limit
        options = _options_of_field(table.config)
        num_fields = len(table.groups_of_field)
        self.fields = [field for field in range(num_fields) for _ in options]
        options = options * num_fields
        self.blocks = torch.tensor([[blocks for blocks, _, _ in choice] for choice in options])  # [choices, options]
        self.spans = [[(first, last) for _, first, last in choice] for choice in options]
        self.costs = np.array([[self._cost(at, o) for o in range(self.blocks.shape[1])] for at in range(len(options))])
        self.logits = nn.Parameter(torch.zeros(self.blocks.shape))  # [choices, options]

    def sample(self) -> Tensor:
        """Draw a choice, `[choices]`."""
        return torch.multinomial(torch.softmax(self.logits.detach(), dim=1), 1).squeeze(1)

    def log_probability(self, choice: Tensor) -> Tensor:
        return torch.log_softmax(self.logits, dim=1).gather(1, choice[:, None]).sum()

    def cost(self, choice: Tensor) -> int:
        """Entries that a choice keeps."""
        return int(self.costs[np.arange(len(choice)), choice.numpy()].sum())

    def activate_(self, choice: Tensor) -> None:
        """Set the table's active blocks to those of the choice."""
        active = torch.zeros_like(self.table.active)
        for at, option in enumerate(choice.tolist()):
            groups = self._groups(at, option)
            first, last = self.spans[at][option]
            active[groups.start : groups.stop, first:last] = True
        self.table.active.copy_(active)

    def best(self) -> Tensor:
        """The most likely choice within the limit, reduced where the least is lost per entry."""
        shares = torch.softmax(self.logits.detach().double(), dim=1).numpy()
        widths = np.array([[last - first for first, last in choice] for choice in self.spans])
        blocks = self.blocks.numpy()
        # value of an option: the part of the rectangle it shares with each other option, times that one's probability
        common = np.minimum(blocks[:, :, None], blocks[:, None]) * np.minimum(widths[:, :, None], widths[:, None])
        values = np.einsum("coi,ci->co", common, shares)
        likeliest = self.costs[np.arange(len(shares)), shares.argmax(1)]
        wanted = np.where(self.costs > likeliest[:, None], -np.inf, values)

        def total(choice: Choice) -> int:
            return self.cost(torch.from_numpy(choice))

        costs = self.costs.astype(np.float64)
        choice = choose_within(wanted, costs, self.limit, total)
        return torch.from_numpy(raise_within(choice, values, costs, self.limit, total))

    def _groups(self, at: int, option: int) -> range:
        """The popularity blocks, most popular first, to which an option gives a vector."""
        return self.table.groups_of_field[self.fields[at]][: int(self.blocks[at, option])]

    def _cost(self, at: int, option: int) -> int:
        first, last = self.spans[at][option]
        return sum(self.table.group_sizes[group] for group in self._groups(at, option)) * (last - first)


def _options_of_field(config: NisConfig) -> list[list[tuple[int, int, int]]]:
    """For each choice of a field its options: (number of popularity blocks, first dimension, last dimension)."""
    sizes, counts = config.candidate_sizes, range(1, config.num_blocks + 1)
    if config.mode == "single":
        return [[(0, 0, 0), *((count, 0, size) for count in counts for size in sizes)]]
    slices = zip((0, *sizes), sizes, strict=False)
    return [[(0, first, last), *((count, first, last) for count in counts)] for first, last in slices]


if TYPE_CHECKING:
    from thresher.data.batches.batches import Batch


class NisSearch(TableSearch):
    """After each training step trains the policy of one budget, and draws the next choice from it.

    Several choices are compared on one validation batch, and the policy moves towards those with the higher reward:

        reward = −logloss − cost_weight · max(0, entries / budget − 1)

    relative to the mean of the others (REINFORCE with a leave-one-out baseline). Budgets take turns on one table.
    """

    tables: Mapping[str, NisEmbedding]

    def __init__(self, task: SearchTask, tables: Mapping[str, NisEmbedding], schedule: Schedule) -> None:
        super().__init__(task, tables, schedule)
        ((self.name, self.table),) = tables.items()
        self.policies = {budget: SizePolicy(self.table, self.planned_counts[budget]) for budget in task.budgets}
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
            for budget in self.open_budgets():
                self.cut(budget, {self.name: self._best_mask(budget, self.policies[budget])})

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

    def state(self) -> Checkpoint:
        state = super().state()
        state.metadata["batches"] = (self.batches.epoch, self.batches.place)
        logits = {str(at): policy.logits.detach() for at, policy in enumerate(self.policies.values())}
        state.add("logits", Checkpoint(logits))
        state.add("optimizer", pack_optimizer(self.optimizer))
        return state

    def restore(self, state: Checkpoint, tickets: Iterable[MaskTicket]) -> None:
        super().restore(state, tickets)
        self.batches.go_to(*state.metadata["batches"])
        logits = state.part("logits").tensors
        with torch.no_grad():
            for at, policy in enumerate(self.policies.values()):
                policy.logits.copy_(logits[str(at)])
        unpack_optimizer_(state.part("optimizer"), self.optimizer)


@register_search("controller")
class NisController(MaskSearchController):
    """Trains a policy for each budget."""

    stage = "controller search"

    def __init__(self, task: SearchTask) -> None:
        tables = find_tables(task.model, NisEmbedding)
        if len(tables) > 1:
            raise AttachError(f"NIS searches a model with one table; this model has {len(tables)}")
        schedule = replace(task.schedule(table.weight for table in tables.values()), every=1)
        super().__init__(task, NisSearch(task, tables, schedule))
