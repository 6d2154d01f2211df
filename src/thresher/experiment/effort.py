"""Effort presets: how much training a pruned model costs, in units of the dense training.

    fast      search and fine-tuning are short; for a first try, or if an epoch takes hours
    standard  the default
    best      a longer search from the dense model, and retraining from initial weights until it converges
    paper     the published way: a search from initial weights with its own warm-up, retraining from initial weights

All but `paper` start the search from the trained dense model; `fast` and `standard` continue each ticket from the
search's own values.
Lengths are shares of the dense training's epochs, so that they suit data that needs twenty epochs and data that needs
one; short trainings end inside a long epoch. A setting given in the config is used as it is; a preset decides only
the settings that are absent. `[retraining]` is for tickets that continue from the search, so `best` does not read it.
"""

from dataclasses import dataclass, replace
from typing import Literal

from thresher.errors import ConfigError
from thresher.search.schedule import SearchConfig, Start
from thresher.search.ticket import Rewind
from thresher.training.fit import TrainingConfig, check_max_epochs

Effort = Literal["fast", "standard", "best", "paper"]


@dataclass(frozen=True, kw_only=True)
class RetrainingConfig:
    """Training of a ticket that continues from the search (`rewind = "final"`). In TOML: `[retraining]`.

    Other settings, and those of tickets that are rewound, are those of `[training]`.
    """

    learning_rate_factor: float | None = None
    """Multiplies the learning rate of `[training]`. Absent: by `effort`."""
    patience: int | None = None
    """Epochs without improvement after which training stops. Absent: by `effort`."""
    max_epochs: int | float | None = None
    """Maximum number of epochs, or a part of one. 0 keeps the values of the search. Absent: by `effort`."""

    def __post_init__(self) -> None:
        if self.learning_rate_factor is not None and not 0 < self.learning_rate_factor < float("inf"):
            raise ConfigError(
                f"retraining.learning_rate_factor is {self.learning_rate_factor}; it must be above 0 and finite"
            )
        if self.patience is not None and self.patience < 1:
            raise ConfigError(f"retraining.patience is {self.patience}; it must be at least 1 epoch")
        if self.max_epochs is not None:
            check_max_epochs("retraining.max_epochs", self.max_epochs)


TRIAL_EPOCHS = 2
"""Length of the training on which labels are tried, unless an effort shortens it."""
LONG_EPOCH = 1000
"""Steps of an epoch above which short trainings may end inside it, but not before this number of steps."""
FEWEST_STEPS = 500
"""Steps of a short training on few rows, unless half of the dense training is shorter."""


def training_length(share: float, dense_epochs: float, steps_per_epoch: int) -> float:
    """A share of the dense training, in whole epochs or in a part of a long epoch; longer if that is only a few steps.

    >>> [training_length(share, 10, steps_per_epoch=500) for share in (0.01, 0.24)]
    [1, 2]
    >>> [training_length(share, 10, steps_per_epoch=5000) for share in (0.01, 0.05, 0.24)]
    [0.2, 0.5, 2]
    >>> [training_length(0.01, dense_epochs, steps_per_epoch=50) for dense_epochs in (10, 40)]
    [5, 10]
    """
    epochs = share * dense_epochs
    if epochs < 1 and steps_per_epoch > LONG_EPOCH:
        return max(epochs, LONG_EPOCH / steps_per_epoch)
    return max(1, round(epochs), round(min(FEWEST_STEPS / steps_per_epoch, dense_epochs / 2)))


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What an effort decides for a search that starts from the dense model."""

    start: Start = "dense"
    rewind: Rewind = "final"
    halving_share: float  # epochs in which the kept entries halve, as a share of the dense training's epochs
    retraining_share: float  # most epochs of retraining, as a share of the dense training's epochs
    patience: int
    trial_epochs: int = TRIAL_EPOCHS  # length of the training on which labels are tried, and of long epochs:
    trial_share: float = 0.1  # the same as a share of the dense training's epochs, if that is shorter
    soft_rate: float = 3.0  # factor of the learning rate on soft labels, which a model cannot memorise
    hard_rate: float = 2.0

    def rate_factor(self, learning_rate: float, *, soft_labels: bool) -> float:
        """The factor of a learning rate, which is not raised above `HIGHEST_RATE`."""
        factor = self.soft_rate if soft_labels else self.hard_rate
        return min(factor, max(1.0, HIGHEST_RATE / learning_rate)) if learning_rate else factor


HIGHEST_RATE = 0.003
"""Presets raise learning rates up to this one: a higher one that suits the dense model is too high for a ticket."""
PRESETS: dict[Effort, Preset | None] = {
    "fast": Preset(halving_share=0.05, retraining_share=0.06, patience=1, trial_epochs=1, trial_share=0.05),
    "standard": Preset(halving_share=0.12, retraining_share=1.5, patience=1),
    "best": Preset(rewind="initial", halving_share=0.25, retraining_share=2.0, patience=3),
    "paper": None,
}
UNKNOWN_DENSE_EPOCHS = 10
"""Assumed for a model that was trained elsewhere."""


@dataclass(frozen=True, kw_only=True)
class StageSettings:
    """Settings of the search and of retraining, as given; `resolve` fills in what the preset decides.

    Attributes:
        can_start_dense: whether the method's search can start from a trained dense model.
        post_training: whether the method prunes a trained model and trains nothing, whatever the effort.
    """

    effort: Effort
    search: SearchConfig
    training: TrainingConfig
    retraining: RetrainingConfig = RetrainingConfig()
    rewind: Rewind | None = None
    can_start_dense: bool = True
    post_training: bool = False

    def __post_init__(self) -> None:
        if self.training.max_epochs == 0:
            raise ConfigError(
                "training.max_epochs is 0: the dense model would stay untrained. It must be at least 1. To keep the "
                "values of the search without retraining, set retraining.max_epochs = 0"
            )

    @property
    def start(self) -> Start:
        """The weights that the search starts from."""
        preset = PRESETS[self.effort]
        if self.post_training:
            return "dense"
        if not self.can_start_dense:
            return "initial"
        return self.search.start or ("initial" if preset is None else preset.start)

    def trial_epochs(self, dense_epochs: float | None, steps_per_epoch: int) -> float:
        """Length of the training on which labels are tried, for a search that starts from the dense model."""
        preset = PRESETS[self.effort]
        if preset is None:
            return TRIAL_EPOCHS
        if steps_per_epoch <= LONG_EPOCH:
            return preset.trial_epochs
        dense_epochs = dense_epochs or UNKNOWN_DENSE_EPOCHS
        return min(preset.trial_epochs, training_length(preset.trial_share, dense_epochs, steps_per_epoch))

    @property
    def resolved_rewind(self) -> Rewind:
        """The weights that retraining starts from."""
        if self.rewind is not None:
            return self.rewind
        if self.post_training:
            return "final"
        preset = PRESETS[self.effort]
        return preset.rewind if preset is not None and self.start == "dense" else "initial"

    def search_config(self, dense_epochs: float | None, *, soft_labels: bool) -> SearchConfig:
        """The search's settings, given the length of the dense training (None: not known)."""
        preset = PRESETS[self.effort]
        if self.start == "initial" or preset is None:
            return replace(self.search, start=self.start)
        config = replace(self.search, start="dense")
        if config.plan_epochs is None and config.halving_epochs is None:
            config = replace(config, halving_epochs=preset.halving_share * (dense_epochs or UNKNOWN_DENSE_EPOCHS))
        if config.learning_rate_factor is None:
            factor = preset.rate_factor(config.optimizer.learning_rate, soft_labels=soft_labels)
            config = replace(config, learning_rate_factor=factor)
        return config

    def retraining_config(
        self, dense_epochs: float | None, steps_per_epoch: int, *, soft_labels: bool
    ) -> TrainingConfig:
        """Settings for training a ticket: those of `[training]`, changed by the effort.

        `[retraining]` counts if the ticket continues from the search.
        """
        preset = PRESETS[self.effort] if self.start == "dense" else None
        config, continues = self.training, self.resolved_rewind == "final"
        if not continues and not soft_labels:  # trained anew on hard labels, a model memorises them at a higher rate
            return config
        given = self.retraining if continues else RetrainingConfig()
        factor, patience, max_epochs = given.learning_rate_factor, given.patience, given.max_epochs
        if self.post_training and continues:
            max_epochs = max_epochs or 0
        if preset is not None and factor is None:
            factor = preset.rate_factor(config.optimizer.learning_rate, soft_labels=soft_labels)
        if preset is not None and continues:
            patience = preset.patience if patience is None else patience
            dense_epochs = dense_epochs or UNKNOWN_DENSE_EPOCHS
            epochs = training_length(preset.retraining_share, dense_epochs, steps_per_epoch)
            max_epochs = min(epochs, config.max_epochs) if max_epochs is None else max_epochs
        rate = config.optimizer.learning_rate * (1.0 if factor is None else factor)
        return replace(
            config,
            patience=config.patience if patience is None else patience,
            max_epochs=config.max_epochs if max_epochs is None else max_epochs,
            optimizer=replace(config.optimizer, learning_rate=rate),
        )
