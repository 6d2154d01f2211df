"""Plan: how many entries should be left at each step of a search. A warm-up, then a geometric fall."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """From `num_entries` down to `smallest` in `num_steps` steps after the warm-up.

    >>> plan = Plan(num_entries=10_000, smallest=100, num_steps=10)
    >>> [plan.num_kept(step) for step in (0, 5, 10, 11)]
    [10000, 1000, 100, 100]
    """

    num_entries: int
    smallest: int
    num_steps: int

    def num_kept(self, step: int) -> int:
        """Entries to keep after `step` steps of pressing: `N·D · (smallest / N·D)^(step / num_steps)`."""
        if step >= self.num_steps:
            return self.smallest
        share: float = (self.smallest / self.num_entries) ** (step / self.num_steps)
        return round(self.num_entries * share)
