"""Settings of a search, whatever its algorithm. In TOML: `[search]`."""

from dataclasses import dataclass, field

from thresher.errors import ConfigError
from thresher.training.early_stopping import EarlyStopping, StoppingMetric
from thresher.training.optimizers import OptimizerConfig


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """How long a search warms up and presses, and with which rates.

    Attributes:
        warmup_epochs: epochs before anything is pruned; absent: until validation stops improving.
        max_warmup_epochs: where an absent `warmup_epochs` ends at the latest.
        plan_epochs: epochs in which a planned search falls from the whole table to the smallest budget. Hurrying costs
            AUC, most at small budgets: 10 instead of 20 lost 0.0006 to 0.0020 on MovieLens-1M (docs/search.md).
        max_epochs: where a search that follows no plan gives up.
        clock_steps: steps between two settings of the clock, at least; a long plan sets it a thousand times.
        early_stopping_metric: what ends a warm-up, or a search that has no plan: `auc` or `logloss`, on validation.
        warmup_patience: epochs without improvement after which a warm-up, or a round of training, ends.
        patience: the same for a search that trains to the end before it decides.
    """

    warmup_epochs: float | None = None
    max_warmup_epochs: int = 20
    plan_epochs: float = 20.0
    max_epochs: int = 60
    clock_steps: int = 20
    early_stopping_metric: StoppingMetric = "auc"
    warmup_patience: int = 1
    patience: int = 3
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
        """A fresh one with these settings, which it checks."""
        return EarlyStopping(metric=self.early_stopping_metric, patience=self.warmup_patience)

    def stopping(self) -> EarlyStopping:
        """A fresh one for a search that trains to the end."""
        return EarlyStopping(metric=self.early_stopping_metric, patience=self.patience)
