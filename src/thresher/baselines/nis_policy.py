"""SizePolicy: independent random choices of sizes, one softmax each, taught by reward (REINFORCE).

What a choice means is the grid's business: in `single` mode a field chooses one rectangle of blocks, in `multiple` mode
each slice of a field's dimensions chooses how many of its popularity blocks have it. The first option is nothing.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from thresher.baselines.nis import NisEmbedding
from thresher.baselines.size_choice import choose_within, give_back


class SizePolicy:
    """Choices within one budget.

    Attributes:
        logits: `[choices, options]`, what is learned.
        limit: entries the budget allows.
    """

    def __init__(self, table: NisEmbedding, limit: int) -> None:
        self.table, self.limit = table, limit
        options = _options(table)
        self.blocks = torch.tensor([[blocks for blocks, _, _ in choice] for choice in options])  # [choices, options]
        self.spans = [[(first, last) for _, first, last in choice] for choice in options]
        self.fields = [field for field in range(len(table.groups_of_field)) for _ in range(_choices_per_field(table))]
        self.costs = np.array([[self._cost(at, o) for o in range(self.blocks.shape[1])] for at in range(len(options))])
        self.logits = nn.Parameter(torch.zeros(self.blocks.shape))

    def sample(self) -> Tensor:
        """A drawn choice, `[choices]`."""
        return torch.multinomial(torch.softmax(self.logits.detach(), dim=1), 1).squeeze(1)

    def log_probability(self, choice: Tensor) -> Tensor:
        return torch.log_softmax(self.logits, dim=1).gather(1, choice[:, None]).sum()

    def cost(self, choice: Tensor) -> int:
        """Entries a choice keeps."""
        return int(self.costs[np.arange(len(choice)), choice.numpy()].sum())

    def activate_(self, choice: Tensor) -> None:
        """Let the table look as the choice says."""
        active = torch.zeros_like(self.table.active)
        for at, option in enumerate(choice.tolist()):
            groups = self._groups(at, option)
            first, last = self.spans[at][option]
            active[groups.start : groups.stop, first:last] = True
        self.table.active.copy_(active)

    def best(self) -> Tensor:
        """The likeliest choice, made to fit: less where the least is lost per entry, more where most is gained."""
        shares = torch.softmax(self.logits.detach().double(), dim=1).numpy()
        widths = np.array([[last - first for first, last in choice] for choice in self.spans])
        blocks = self.blocks.numpy()
        # what an option is worth: the part of the rectangle it shares with each other option, by how likely that is
        common = np.minimum(blocks[:, :, None], blocks[:, None]) * np.minimum(widths[:, :, None], widths[:, None])
        values = np.einsum("coi,ci->co", common, shares)
        likeliest = self.costs[np.arange(len(shares)), shares.argmax(1)]
        wanted = np.where(self.costs > likeliest[:, None], -np.inf, values)

        def total(choice: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> int:
            return self.cost(torch.from_numpy(choice))

        costs = self.costs.astype(np.float64)
        choice = choose_within(wanted, costs, self.limit, total)
        return torch.from_numpy(give_back(choice, values, costs, self.limit, total))

    def _groups(self, at: int, option: int) -> range:
        """The popularity blocks, most popular first, that an option gives a vector."""
        groups = self.table.groups_of_field[self.fields[at]]
        return groups[: int(self.blocks[at, option])]

    def _cost(self, at: int, option: int) -> int:
        first, last = self.spans[at][option]
        return sum(self.table.group_sizes[group] for group in self._groups(at, option)) * (last - first)


def _choices_per_field(table: NisEmbedding) -> int:
    return 1 if table.config.mode == "single" else len(table.config.candidate_sizes)


def _options(table: NisEmbedding) -> Sequence[Sequence[tuple[int, int, int]]]:
    """For each choice its options: so many popularity blocks, from one dimension to another."""
    sizes, num_blocks = table.config.candidate_sizes, table.config.num_blocks
    counts = range(1, num_blocks + 1)
    if table.config.mode == "single":
        of_field = [[(0, 0, 0), *((count, 0, size) for count in counts for size in sizes)]]
    else:
        slices = zip((0, *sizes), sizes, strict=False)
        of_field = [[(0, first, last), *((count, first, last) for count in counts)] for first, last in slices]
    return of_field * len(table.groups_of_field)
