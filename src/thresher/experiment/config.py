"""RunConfig: everything a run depends on, one to one with its `config.toml`."""

from dataclasses import dataclass, field
from typing import ClassVar

from thresher._internal.settings import config_to_mapping
from thresher._internal.text import list_first
from thresher.data.config import DataConfig
from thresher.data.encode.sources import differences
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding
from thresher.embeddings.method_registry import method_name, registered_embeddings
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError
from thresher.experiment.effort import Effort, RetrainingConfig, StageSettings
from thresher.models.base import ModelConfig
from thresher.models.fm import FmConfig
from thresher.search.budget import Budget, parse_budgets
from thresher.search.schedule import SearchConfig
from thresher.search.ticket import Rewind
from thresher.training.devices import Precision, check_device
from thresher.training.distillation import HARD_LABELS, DistillationPlan, candidate_plans, check_distillation
from thresher.training.fit import TrainingConfig

LADDER = ("20%", "10%", "5%", "2%", "1%", "0.5%", "0.2%")
"""Sizes that are tried for `max_auc_drop`."""
SHOWN_CHANGES = 5


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything a run depends on, one to one with its `config.toml`."""

    config_imports: ClassVar[str] = "imports"

    data: DataConfig = field(default_factory=DataConfig)
    """Which data to read and how to encode it."""
    model: ModelConfig = field(default_factory=FmConfig)
    """The model; `name` selects one of the registered models, which have settings of their own."""
    embedding: EmbeddingConfig = field(default_factory=PepConfig)
    """The embedding; `method` selects one of the registered methods, which have settings of their own."""
    search: SearchConfig = field(default_factory=SearchConfig)
    """The search for tickets. Most of its settings are decided by `effort` if they are absent."""
    training: TrainingConfig = field(default_factory=TrainingConfig)
    """Training of the dense model and of tickets that are rewound."""
    budgets: tuple[str, ...] = ("10%", "5%", "2%", "1%")
    """Sizes to prune to: parameters (`30k`), shares of the table (`2%`), bytes of the stored table (`1MB`), or bytes
    of everything a prediction loads (`1MB bundle`). One search serves all of them, so a further size costs one
    retraining."""
    own_first_order: int | None = None
    """Number of first-order weights that a bundle stores, in int8; the other features of a field share one weight. A
    number larger than the number of features stores all in int8. Absent: all in float32, except for budgets such as
    `1MB bundle`, which store as many as fit. Not together with `embedding.first_order`."""
    max_auc_drop: float | None = None
    """Instead of `budgets`: by how much validation AUC may fall against the dense model, such as 0.001. Several sizes
    are searched, and the smallest within this drop is recommended."""
    effort: Effort = "standard"
    """How much training is spent (docs/search.md): `fast` for a first try, `standard`,
    `best` for longer training, or `paper` for the published way. It decides every setting of search and retraining that
    is absent."""
    start_from: str | None = None
    """Folder of a run or a bundle whose trained model is the dense model of this run, instead of training one. It must
    have the same model settings, and the rows must be encoded with its vocabularies (`data.vocabulary_like`)."""
    retraining: RetrainingConfig = field(default_factory=RetrainingConfig)
    """Training of tickets that continue from the search (`rewind = "final"`)."""
    rewind: Rewind | None = None
    """Weights that retraining starts from: `final` continues from the search, `initial` rewinds to the initial weights
    as in the paper, `random` draws new ones. Absent: by `effort`."""
    teacher_share: float | None = None
    """Weight of the teachers' predictions in the labels of retraining, 0 to 1 (docs/distillation.md). 0 trains on hard
    labels, as in the paper, and saves the time of the trial. Absent: 1 if that raises validation AUC by at least 0.001
    in a short trial (with effort `paper`: in the retraining of the smallest ticket), else 0."""
    distill_search: bool | None = None
    """Whether the search trains on soft labels, too. Absent: if retraining does (with effort `paper`: where
    distillation helps, a second search is run on soft labels, and its tickets are used if the smallest is better by
    another 0.001)."""
    num_teachers: int = 1
    """Dense models of each kind whose predictions are averaged, each with its own seed. More give better soft labels.
    Each costs another dense training, even if hard labels turn out to be better."""
    teacher_models: tuple[ModelConfig, ...] = ()
    """Models of other kinds that are teachers beside the dense one, with uniform tables of the same width, each
    `num_teachers` times; each is a table as `[model]`. Different kinds of models make errors on
    different rows, so that their mean is more accurate."""
    seed: int = 0
    """Seed of initial weights, batch order and dropout. Change it to see how much results differ by chance; the split
    has its own, `data.split_seed`."""
    seeds: int = 1
    """Number of seeds, from `seed` on. With several, results are means and standard deviations, which show how much
    differs by chance; every further seed costs all trainings again, in `seeds/` of the run's folder."""
    map_tables_over_mb: int | None = None
    """Tables and optimizer states above this size, in MB, are files in the run's folder, so that a table larger than
    the memory can be trained at the speed of the disk. Absent: all are in memory."""
    device: str = "auto"
    """Device that trains, searches, retrains and evaluates: `cpu`, `cuda`, `cuda:1` or `mps`. `auto` is CUDA where
    there is one, else the CPU (docs/gpu_and_many_machines.md)."""
    precision: Precision = "float32"
    """Precision of matrix products: `float32`, or `bf16`, which is faster on recent GPUs. Tables, losses and updates
    stay in float32."""
    imports: tuple[str, ...] = ()
    """Modules to import first, which register your models, methods or data sources (docs/custom_code.md)."""

    def __post_init__(self) -> None:
        parse_budgets(self.budgets)
        check_device(self.device)
        check_distillation(
            self.teacher_share,
            self.distill_search,
            num_teachers=self.num_teachers,
            num_other_models=len(self.teacher_models),
        )
        if self.own_first_order is not None:
            if self.own_first_order < 0:
                raise ConfigError(f"own_first_order is {self.own_first_order}. It must be 0 or more, or absent.")
            if isinstance(self.embedding, PepConfig) and self.embedding.first_order:
                raise ConfigError(
                    "own_first_order and embedding.first_order are mutually exclusive: the search decides which "
                    "first-order weights are stored. Remove one of the two."
                )
        if self.seeds < 1:
            raise ConfigError(f"seeds is {self.seeds}. It must be at least 1.")
        if self.start_from is not None and self.stage_settings().start != "dense":
            raise ConfigError(
                "start_from is given, but this search starts from initial weights (effort paper, search.start, or a "
                "method that cannot start from a trained model). Remove one of the two."
            )
        if self.map_tables_over_mb is not None and self.map_tables_over_mb < 0:
            raise ConfigError(f"map_tables_over_mb is {self.map_tables_over_mb}. It must be 0 or more, or absent.")
        if self.max_auc_drop is not None and not 0 <= self.max_auc_drop < 0.5:
            raise ConfigError(
                f"max_auc_drop is {self.max_auc_drop}. It must be at least 0 and below 0.5, for example 0.001."
            )
        self.stage_settings()  # refuses settings that contradict each other

    def candidate_plans(self) -> list[DistillationPlan]:
        """The distillation plans that validation decides between; one if the settings leave no choice."""
        if self.teacher_share is None and self.embedding.needs_trained_model and not self.retraining.max_epochs:
            return [HARD_LABELS]  # nothing is trained that could use other labels
        in_search = self.distill_search
        if in_search is None and self.stage_settings().start == "dense":
            in_search = True
        return candidate_plans(self.teacher_share, in_search if self.is_searched else False)

    def stage_settings(self) -> StageSettings:
        """The settings of search and retraining."""
        return StageSettings(
            effort=self.effort,
            search=self.search,
            training=self.training,
            retraining=self.retraining,
            rewind=self.rewind,
            can_start_dense=self.embedding.can_start_dense,
            post_training=self.embedding.needs_trained_model,
        )

    @property
    def is_searched(self) -> bool:
        """Whether the method has a search; otherwise its settings follow from the budget."""
        method = registered_embeddings()[method_name(self.embedding)].embedding
        return method.search_algorithm != FieldEmbedding.search_algorithm

    @property
    def largest_share(self) -> float:
        """The largest weight of teacher predictions that a plan uses; 0 without distillation."""
        return self.candidate_plans()[-1].retraining

    def all_teachers(self) -> list[ModelConfig]:
        """The models of all teachers; the first is the dense model."""
        return [model for model in (self.model, *self.teacher_models) for _ in range(self.num_teachers)]

    def wanted_budgets(self) -> tuple[Budget, ...]:
        """The budgets to search for: those given, or the sizes tried for `max_auc_drop`."""
        return parse_budgets(self.budgets if self.max_auc_drop is None else LADDER)


def changed_settings(stored: object, config: object) -> str:
    """The settings that differ between two configs, the first few of them; empty if they are equal.

    >>> changed_settings(RunConfig(seed=1), RunConfig(max_auc_drop=0.01))
    'max_auc_drop was null, is 0.01; seed was 1, is 0'
    """
    changes = differences(config_to_mapping(stored), config_to_mapping(config))
    return list_first(changes, SHOWN_CHANGES, separator="; ")
