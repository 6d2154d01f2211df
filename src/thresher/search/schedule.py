"""Settings of a search (`SearchConfig`), its length in steps (`Schedule`), and the planned counts (`Plan`)."""

from dataclasses import dataclass, field

from thresher.errors import ConfigError
from thresher.training.fit import EarlyStopping, StoppingMetric
from thresher.training.optimizers import OptimizerConfig

MAX_PRUNINGS = 1000
"""A long plan prunes this many times; pruning more often changes nothing."""


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Settings of a search, for any search algorithm. In TOML: `[search]`.

    A shorter plan costs AUC: 10 epochs instead of 20 lost 0.0006 to 0.0020 on MovieLens-1M (docs/search.md).
    """

    warmup_epochs: float | None = None  # before anything is pruned; None: until validation stops improving
    max_warmup_epochs: int = 20  # if `warmup_epochs` is absent
    plan_epochs: float = 20.0  # from the whole table to the smallest budget
    max_epochs: int = 60  # of a search without a plan
    clock_steps: int = 20  # minimum number of steps between two settings of the clock
    early_stopping_metric: StoppingMetric = "auc"  # ends a warm-up, or a search without a plan
    warmup_patience: int = 1  # epochs without improvement that end a warm-up, or a round of training
    patience: int = 3  # the same for a search that trains to convergence before it prunes
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        for name in ("max_warmup_epochs", "plan_epochs", "max_epochs", "clock_steps"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"search.{name} is {getattr(self, name)}; it must be above 0")
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

    @classmethod
    def of(cls, config: SearchConfig, steps_per_epoch: int) -> "Schedule":
        """Convert settings in epochs to steps.

        >>> Schedule.of(SearchConfig(warmup_epochs=0.5, plan_epochs=300), steps_per_epoch=100)
        Schedule(warmup_steps=50, plan_steps=30000, every=30)
        """
        warmup_epochs = config.max_warmup_epochs if config.warmup_epochs is None else config.warmup_epochs
        plan_steps = max(1, round(config.plan_epochs * steps_per_epoch))
        every = max(config.clock_steps, plan_steps // MAX_PRUNINGS)
        return cls(warmup_steps=round(warmup_epochs * steps_per_epoch), plan_steps=plan_steps, every=every)

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

    def num_kept(self, step: int) -> int:
        """Entries to keep `step` steps after the warm-up: `N·D · (smallest / N·D)^(step / num_steps)`."""
        if step >= self.num_steps:
            return self.smallest
        share: float = (self.smallest / self.num_entries) ** (step / self.num_steps)
        return round(self.num_entries * share)
