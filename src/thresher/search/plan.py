"""How a search's steps are spent (`Schedule`), and how many entries should be left at each of them (`Plan`).

A warm-up, then a geometric fall.
"""

from dataclasses import dataclass

from thresher.search.config import SearchConfig

MOST_LOOKS = 1000


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A search's settings in steps.

    Attributes:
        warmup_steps: steps before anything is pruned, at most: validation may end them earlier.
        plan_steps: steps of pruning after them.
        every: steps between two looks at the tables.
        max_epochs: the epochs all this takes, the last perhaps in part.
    """

    warmup_steps: int
    plan_steps: int
    every: int
    max_epochs: int

    @classmethod
    def of(cls, config: SearchConfig, steps_per_epoch: int) -> "Schedule":
        """From settings in epochs.

        >>> Schedule.of(SearchConfig(warmup_epochs=0.5, plan_epochs=300), steps_per_epoch=100)
        Schedule(warmup_steps=50, plan_steps=30000, every=30, max_epochs=301)
        """
        warmup_epochs = config.max_warmup_epochs if config.warmup_epochs is None else config.warmup_epochs
        warmup_steps = round(warmup_epochs * steps_per_epoch)
        plan_steps = max(1, round(config.plan_epochs * steps_per_epoch))
        return cls(
            warmup_steps=warmup_steps,
            plan_steps=plan_steps,
            every=max(config.clock_steps, plan_steps // MOST_LOOKS),
            max_epochs=-(-(warmup_steps + plan_steps) // steps_per_epoch),
        )

    @property
    def num_steps(self) -> int:
        return self.warmup_steps + self.plan_steps


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
