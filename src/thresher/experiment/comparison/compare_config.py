"""CompareConfig: what is compared, and the protocol all methods share."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from thresher._internal.settings import load_toml
from thresher.data.config import DataConfig
from thresher.embeddings.method_registry import embedding_config
from thresher.errors import ConfigError, FolderError
from thresher.experiment.config import changed_settings
from thresher.models.model_registry import FLOOR, has_embedding, model_config
from thresher.search.budget import Budget, parse_budgets
from thresher.search.schedule import PLAN_EPOCHS, SearchConfig
from thresher.training.distillation import check_teacher_share
from thresher.training.fit import TrainingConfig

RIVAL = "frequent"
"""The method that a search must beat to be worth it."""
SETTINGS = "settings.toml"
"""File with the settings of the last call."""


@dataclass(frozen=True, kw_only=True)
class CompareConfig:
    """Everything a comparison's results depend on."""

    config_imports: ClassVar[str] = "imports"

    data: DataConfig = field(default_factory=DataConfig)
    """Which data to read and how to encode it."""
    methods: tuple[str, ...] = ("pep", "uniform", "mde", "magnitude", "quantized")
    """Names of the methods to compare."""
    models: tuple[str, ...] = ("fm",)
    """Names of models with an embedding; each has its own frontier."""
    budgets: tuple[str, ...] = ("10%", "5%", "2%", "1%")
    """Sizes at which all methods are compared. A share is one of a dense table of `embedding_dim`, for every method."""
    embedding_dim: int = 64
    """Width of the dense table to which shares in `budgets` refer. The widths of the methods come from their grids."""
    seeds: int = 3
    """Number of seeds, from `first_seed` on. A seed changes initial weights and batch order, not the split. Three or
    more show how much results differ by chance."""
    first_seed: int = 0
    """The seed on which settings are tried. Above 0 to run further seeds elsewhere."""
    trials: int = 3
    """Number of settings of its grid that each method tries on the first seed, judged on validation."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """The search, shared by all methods that search."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Training, shared by all methods when they are retrained."""
    teacher_share: float = 0.0
    """Weight of the predictions of a dense model of `embedding_dim`, trained first, in the training labels of all
    methods, 0 to 1. 0 compares on hard labels, as papers do."""
    rival: bool = True
    """Also compare with the trivial rival, `frequent`: a narrower table of frequent features with the bytes of `pep`
    (or of the first method), its width chosen on validation. False saves its trainings."""
    imports: tuple[str, ...] = ()
    """Modules to import first, which register your models, methods or data sources (docs/custom_code.md)."""

    def __post_init__(self) -> None:
        for method in self.methods:
            embedding_config(method)  # raises for an unknown name
        for model in self.models:
            if not has_embedding(model_config(model)):
                known = " It is part of every comparison, as the floor." if model == FLOOR else ""
                raise ConfigError(f"model {model!r} has no embedding to compare methods on. Leave it out.{known}")
        parse_budgets(self.budgets)
        check_teacher_share(self.teacher_share)
        if self.embedding_dim < 1:
            raise ConfigError(f"embedding_dim is {self.embedding_dim}. It must be at least 1.")
        if self.seeds < 1 or self.trials < 1:
            raise ConfigError(f"seeds is {self.seeds} and trials {self.trials}. Both must be at least 1.")
        if self.first_seed < 0:
            raise ConfigError(f"first_seed is {self.first_seed}. It must be 0 or more.")
        if not self.methods or not self.models:
            raise ConfigError("there is nothing to compare. Name at least one method and one model.")

    def budgets_for(self, num_features: int) -> dict[Budget, str]:
        """Each budget as it was written, by the budget that methods get: shares are converted to parameters."""
        num_entries = num_features * self.embedding_dim
        found = {}
        for budget in parse_budgets(self.budgets):
            given = budget if budget.unit != "share" else Budget.parse(max(1, budget.max_entries(num_entries)))
            found[given] = str(budget)
        return found

    def shared(self) -> "CompareConfig":
        """The settings that must stay the same in a folder, so that results are comparable.

        `trials` is one of them, since more trials may choose other settings; so is the seed on which they are tried.
        """
        first_seed = 0 if self.trials == 1 else self.first_seed
        plain = replace(self, methods=("uniform",), models=("fm",), budgets=("1%",), seeds=1, imports=(), rival=True)
        return replace(plain, first_seed=first_seed)

    @property
    def all_methods(self) -> tuple[str, ...]:
        """The methods and, last, the rival."""
        others = tuple(method for method in self.methods if method != RIVAL)
        return (*others, RIVAL) if self.rival or RIVAL in self.methods else self.methods

    @property
    def rivalled(self) -> str:
        """The method whose bytes the rival gets."""
        return "pep" if "pep" in self.methods else self.methods[0]

    @property
    def seed_numbers(self) -> range:
        """The seeds, in the order in which they run."""
        return range(self.first_seed, self.first_seed + self.seeds)


def with_epochs(config: CompareConfig, epochs: int) -> CompareConfig:
    """The same comparison with at most `epochs` epochs in every training and search."""
    if epochs < 1:
        raise ConfigError(f"epochs is {epochs}. It must be at least 1.")
    warmup = max(1, epochs // 2)
    search = replace(
        config.search,
        max_epochs=epochs,
        max_warmup_epochs=warmup,
        warmup_epochs=None if config.search.warmup_epochs is None else min(config.search.warmup_epochs, warmup),
        plan_epochs=min(config.search.plan_epochs or PLAN_EPOCHS, max(1, epochs - warmup)),
    )
    return replace(config, search=search, training=replace(config.training, max_epochs=epochs))


def check_comparable(config: CompareConfig, path: Path) -> None:
    """Raise if the results in a folder would not be comparable; `path` holds the settings of its last call."""
    if not path.exists():
        if path.parent.exists() and any(path.parent.iterdir()):
            raise FolderError(f"{path.parent} is not empty and holds no comparison. Choose another folder.")
    elif (stored := load_toml(CompareConfig, path).shared()) != config.shared():
        raise FolderError(
            f"the comparison in {path.parent} was started with other settings or trials "
            f"({changed_settings(stored, config.shared())}). Use those (see {path}), or choose another folder."
        )
