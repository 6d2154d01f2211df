"""Settings of a search (`SearchConfig`), its length in steps (`Schedule`), and the planned counts (`Plan`)."""

import math
from dataclasses import dataclass, field
from typing import Literal

from thresher.errors import ConfigError
from thresher.training.fit import EarlyStopping, StoppingMetric
from thresher.training.optimizers import OptimizerConfig

MAX_PRUNINGS = 1000
"""A long plan prunes this many times; pruning more often changes nothing."""
MAX_PRUNINGS_PER_HALVING = 150
CLOCK_STEPS = 20
"""Fewest steps between two prunings, by default."""
PLAN_EPOCHS = 20.0
"""Length of a plan that starts from the initial weights, if the settings give none."""

Start = Literal["dense", "initial"]
"""Weights a search starts from: those of the trained dense model, without a warm-up, or the initial ones."""


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Settings of a search, for any search algorithm. In TOML: `[search]`.

    A shorter plan costs AUC: docs/search.md has the measurements.
    """

    start: Start | None = None
    """Weights the search starts from: `dense`, those of the trained dense model, without a warm-up; or `initial`.
    Absent: by `effort`; methods that cannot start from a dense model use `initial`."""
    warmup_epochs: float | None = None
    """Epochs before anything is pruned, of a search from initial weights. Absent: until validation stops improving."""
    max_warmup_epochs: int = 20
    """Maximum number of epochs of a warm-up that ends when validation stops improving."""
    plan_epochs: float | None = None
    """Epochs in which the table shrinks to the smallest budget. Fewer cost AUC, most at small budgets, unless the dense
    model overfits. Absent: by `halving_epochs`."""
    halving_epochs: float | None = None
    """Epochs in which the number of kept entries halves; larger prunes more slowly. Absent: by `effort`."""
    learning_rate_factor: float | None = None
    """Multiplies the learning rate of `[search.optimizer]`. Absent: by `effort`."""
    max_epochs: int = 60
    """Maximum number of epochs of a search without a plan."""
    clock_steps: int = CLOCK_STEPS
    """Minimum number of steps between two updates of the clock."""
    early_stopping_metric: StoppingMetric = "auc"
    """Validation metric that ends a warm-up, or a search without a plan."""
    warmup_patience: int = 1
    """Epochs without improvement that end a warm-up, or a round of training."""
    patience: int = 3
    """Epochs without improvement that end a search which trains to convergence before it prunes."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    """The optimizer of the search."""

    def __post_init__(self) -> None:
        epochs = ("max_warmup_epochs", "plan_epochs", "halving_epochs", "max_epochs")
        for name in (*epochs, "learning_rate_factor", "clock_steps"):
            if (value := getattr(self, name)) is not None and not 0 < value < float("inf"):
                raise ConfigError(f"search.{name} is {value}; it must be above 0 and finite")
        if self.plan_epochs is not None and self.halving_epochs is not None:
            raise ConfigError("search.plan_epochs and search.halving_epochs are mutually exclusive. Remove one")
        if self.warmup_epochs is not None and self.warmup_epochs < 0:
            raise ConfigError(f"search.warmup_epochs is {self.warmup_epochs}; it must be 0 or more")
        self.warmup_stopping()
        self.stopping()

    def warmup_stopping(self) -> EarlyStopping:
        """Early stopping for a warm-up or a round of training."""
        return EarlyStopping(metric=self.early_stopping_metric, patience=self.warmup_patience)

    def stopping(self) -> EarlyStopping:
        """Early stopping for a search that trains to convergence before it prunes."""
        return EarlyStopping(metric=self.early_stopping_metric, patience=self.patience)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A search's settings in steps."""

    warmup_steps: int  # at most; validation may end the warm-up earlier
    plan_steps: int  # of pruning, after the warm-up
    every: int  # steps between two prunings
    halving_steps: float | None = None  # in which the kept entries halve, if the settings fix this rate

    @classmethod
    def of_steps(cls, steps: int, warmup_steps: int | None = None, every: int | None = None) -> "Schedule":
        """The schedule of a search of `steps` steps in a loop of the user; a third of them is the warm-up by default.

        >>> Schedule.of_steps(300)
        Schedule(warmup_steps=100, plan_steps=200, every=20, halving_steps=None)
        """
        warmup_steps = steps // 3 if warmup_steps is None else warmup_steps
        every = max(CLOCK_STEPS, (steps - warmup_steps) // MAX_PRUNINGS) if every is None else every
        if every < 1:
            raise ConfigError(f"every must be at least 1, got {every}")
        return cls(warmup_steps=warmup_steps, plan_steps=steps - warmup_steps, every=every)

    def check_pruning(self) -> None:
        """Raise if the warm-up takes all steps."""
        if self.plan_steps < 1:
            raise ConfigError(
                f"a warm-up of {self.warmup_steps} steps leaves no step for pruning: the search has {self.num_steps} "
                "steps. Make the search longer or the warm-up shorter"
            )

    @classmethod
    def of(cls, config: SearchConfig, steps_per_epoch: int, num_halvings: float | None = None) -> "Schedule":
        """Convert settings in epochs to steps.

        Args:
            num_halvings: how often the number of entries halves from the whole table to the smallest budget; needed for
                `halving_epochs`.

        >>> Schedule.of(SearchConfig(warmup_epochs=0.5, plan_epochs=300), steps_per_epoch=100)
        Schedule(warmup_steps=50, plan_steps=30000, every=30, halving_steps=None)
        >>> Schedule.of(SearchConfig(start="dense", halving_epochs=0.5), steps_per_epoch=100, num_halvings=5)
        Schedule(warmup_steps=0, plan_steps=260, every=20, halving_steps=50.0)
        """
        warmup_epochs = config.max_warmup_epochs if config.warmup_epochs is None else config.warmup_epochs
        warmup_steps = 0 if config.start == "dense" else round(warmup_epochs * steps_per_epoch)
        if config.halving_epochs is not None:
            assert num_halvings is not None, "the length of the plan follows from the smallest budget"
            halving_steps = config.halving_epochs * steps_per_epoch
            # neither rate, interval nor the step of a cut depends on the smallest budget: it changes no larger ticket
            every = max(config.clock_steps, int(halving_steps) // MAX_PRUNINGS_PER_HALVING)
            plan_steps = max(1, math.ceil(halving_steps * num_halvings / every)) * every
            return cls(warmup_steps=warmup_steps, plan_steps=plan_steps, every=every, halving_steps=halving_steps)
        plan_epochs = PLAN_EPOCHS if config.plan_epochs is None else config.plan_epochs
        plan_steps = max(1, round(plan_epochs * steps_per_epoch))
        every = max(config.clock_steps, plan_steps // MAX_PRUNINGS)
        return cls(warmup_steps=warmup_steps, plan_steps=plan_steps, every=every)

    @property
    def num_steps(self) -> int:
        return self.warmup_steps + self.plan_steps

    def num_epochs(self, steps_per_epoch: int) -> int:
        """Epochs of warm-up and plan together, rounded up."""
        return -(-self.num_steps // steps_per_epoch)


@dataclass(frozen=True)
class Plan:
    """A geometric fall from `num_entries` to `smallest` entries in `num_steps` steps after the warm-up.

    >>> plan = Plan(num_entries=10_000, smallest=100, num_steps=10)
    >>> [plan.num_kept(step) for step in (0, 5, 10, 11)]
    [10000, 1000, 100, 100]
    """

    num_entries: int
    smallest: int
    num_steps: int
    halving_steps: float | None = None  # in which the count halves; it may then end just below `smallest`

    def num_kept(self, step: int) -> int:
        """Entries to keep `step` steps after the warm-up: `N·D · (smallest / N·D)^(step / num_steps)`."""
        if self.halving_steps is not None:
            return max(1, round(self.num_entries * math.exp2(-min(step, self.num_steps) / self.halving_steps)))
        if step >= self.num_steps:
            return self.smallest
        share: float = (self.smallest / self.num_entries) ** (step / self.num_steps)
        return round(self.num_entries * share)
