"""Run: the folder one pruning lives in, and the settings it was started with.

    runs/<name>/{config.toml,encoded,dense,tickets,retrained,bundles,report,results.json}

The folders bear the names of the stages that fill them. Not here: the stages (`thresher.stages`).
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from thresher.config import config_to_mapping, load_toml, save_toml
from thresher.data.fingerprint import differences
from thresher.data.sources import DataConfig
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding
from thresher.embeddings.pep import PepConfig
from thresher.embeddings.registry import method_name, registered_embeddings
from thresher.errors import ConfigError, ThresherError
from thresher.files import read_json
from thresher.models.base import ModelConfig
from thresher.models.fm import FmConfig
from thresher.run_folder import ENCODED, SETTINGS, clear, is_free, throw_away
from thresher.search.config import SearchConfig
from thresher.teaching import Teaching, check_teachers, check_teaching, teachings
from thresher.tickets.budget import Budget, parse_budgets
from thresher.tickets.ticket import Rewind
from thresher.training.fit import TrainingConfig
from thresher.training.lesson import Lesson

LADDER = ("20%", "10%", "5%", "2%", "1%", "0.5%", "0.2%")
"""Sizes that are tried when the user says what may be lost instead of what may stay."""
SHOWN_CHANGES = 5


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything a run depends on, one to one with its `config.toml`.

    Attributes:
        budgets: sizes to cut tickets for: parameters (`30k`), shares (`2%`) or bytes (`1MB`).
        max_auc_drop: instead of budgets: what validation AUC may fall by against the dense model. A ladder of sizes is
            searched, and the smallest within it is recommended.
        rewind: where retraining starts; the paper's is `initial`.
        teacher_share: the part of each training label that is the teachers' prediction when tickets are retrained
            (docs/search.md); 0 for labels alone, as in the paper. Absent: 1 if that retrains the smallest ticket to a
            validation AUC at least 0.001 higher, else 0.
        teach_search: whether the teacher has the same part in the search. Absent: where a teacher helps, there is a
            second search, with it, whose tickets are taken if its smallest is better by as much again.
        num_teachers: dense models of each kind whose predictions are averaged: the one pruning is measured against, and
            others of other seeds. Each costs another dense training, also where labels then prove better.
        teacher_models: models of other kinds that teach beside the dense one, with plain tables as wide, each
            `num_teachers` times.
        seed: of initial weights, batch order and dropout; the split has its own, `data.split_seed`.
        map_tables_over_mb: tables and optimizer states larger than this live in files in the run's folder, so that a
            table larger than the memory still trains, at the speed of the disk; absent: all are in memory.
    """

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=FmConfig)
    embedding: EmbeddingConfig = field(default_factory=PepConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    budgets: tuple[str, ...] = ("10%", "5%", "2%", "1%")
    max_auc_drop: float | None = None
    rewind: Rewind = "initial"
    teacher_share: float | None = None
    teach_search: bool | None = None
    num_teachers: int = 1
    teacher_models: tuple[ModelConfig, ...] = ()
    seed: int = 0
    map_tables_over_mb: int | None = None

    def __post_init__(self) -> None:
        parse_budgets(self.budgets)
        check_teaching(self.teacher_share, self.teach_search)
        check_teachers(self.teacher_share, self.num_teachers, others=len(self.teacher_models))
        if self.map_tables_over_mb is not None and self.map_tables_over_mb < 0:
            raise ConfigError(f"map_tables_over_mb is {self.map_tables_over_mb}; it must be 0 or more, or left out")
        if self.max_auc_drop is not None and not 0 <= self.max_auc_drop < 0.5:
            raise ConfigError(f"max_auc_drop is {self.max_auc_drop}; it is a difference of AUC, such as 0.001")

    def teachings(self) -> list[Teaching]:
        """How teachers may teach: one way if all is told, else those that validation decides between."""
        return teachings(self.teacher_share, self.teach_search if self.is_searched else False)

    @property
    def is_searched(self) -> bool:
        """Whether the method has a search; else its settings follow from the budget."""
        method = registered_embeddings()[method_name(self.embedding)].embedding
        return method.search_algorithm != FieldEmbedding.search_algorithm

    @property
    def largest_share(self) -> float:
        """The part of the labels that teachers may come to have; 0 if there are none."""
        return self.teachings()[-1].retraining

    def all_teachers(self) -> list[ModelConfig]:
        """The dense models that teach, the first of them the one pruning is measured against."""
        return [model for model in (self.model, *self.teacher_models) for _ in range(self.num_teachers)]

    def wanted_budgets(self) -> tuple[Budget, ...]:
        """The budgets to search for: the user's, or the ladder."""
        return parse_budgets(self.budgets if self.max_auc_drop is None else LADDER)


def what_differs(stored: object, config: object) -> str:
    """The settings in which a second call differs from the first, a few of them in words; nothing if they are equal.

    >>> what_differs(RunConfig(seed=1), RunConfig(max_auc_drop=0.01))
    'max_auc_drop was null, is 0.01; seed was 1, is 0'
    """
    changes = differences(config_to_mapping(stored), config_to_mapping(config))
    more = [f"and {len(changes) - SHOWN_CHANGES} more"] if len(changes) > SHOWN_CHANGES else []
    return "; ".join([*changes[:SHOWN_CHANGES], *more])


@dataclass(frozen=True)
class Run:
    """A run's folder and its settings."""

    folder: Path
    config: RunConfig

    @classmethod
    def start(cls, folder: Path, config: RunConfig, *, resume: bool = False, force: bool = False) -> "Run":
        """Make the folder, or take up the run that is in it. A table that was encoded there is no hindrance.

        Args:
            resume: go on with a run that was started here with the same settings.
            force: throw away the run that is here. What is no run, or data this one is to read, is not thrown away.
        """
        if resume and force:
            raise ConfigError("one goes on with a run (resume=True) or throws it away (force=True); choose one of them")
        settings = folder / SETTINGS
        stored = _stored(settings) if settings.exists() else None
        if stored is None and not is_free(folder):
            raise ConfigError(f"{folder} is not empty and holds no run; choose another folder (out=…)")
        if force:
            throw_away(folder, config.data)
        elif stored is not None and not resume:
            raise ConfigError(
                f"{folder} already holds a run; go on with it (resume=True), throw it away (force=True), or choose "
                "another folder (out=…)"
            )
        elif stored is not None and stored != config:
            raise ConfigError(
                f"the run in {folder} was started with other settings ({what_differs(stored, config)}); resume it "
                f"with those (see {settings}), or choose another folder (out=…)"
            )
        save_toml(config, settings)
        return cls(folder, config)

    @classmethod
    @contextmanager
    def started(cls, folder: Path, config: RunConfig, *, resume: bool = False, force: bool = False) -> Iterator["Run"]:
        """`start`, but a run refused before its first training step leaves nothing in the way of the next.

        Only its table stays, which may have taken long to encode: the next run here uses it.
        """
        existed, fresh = folder.exists(), force or not (folder / SETTINGS).exists()
        run = cls.start(folder, config, resume=resume, force=force)
        try:
            yield run
        except ThresherError:
            if fresh and not any(folder.rglob("history.jsonl")):
                with suppress(OSError):
                    clear(folder, keep={ENCODED})
                    if not existed:
                        folder.rmdir()  # unless there is a table in it
            raise

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """A run that exists, with the settings it was started with."""
        if not (folder / SETTINGS).exists():
            raise ConfigError(f"{folder} holds no run (config.toml is missing); start one with: thresher prune … --out")
        return cls(folder, load_toml(RunConfig, folder / SETTINGS))

    @contextmanager
    def large_tables(self) -> Iterator[None]:
        """Inside, tables are kept as `map_tables_over_mb` says."""
        if self.config.map_tables_over_mb is None:
            yield
            return
        from thresher.kernels.tables import mapped_tables

        with mapped_tables(self.folder / "tables", self.config.map_tables_over_mb << 20):
            yield

    @property
    def encoded(self) -> Path:
        return self.folder / ENCODED

    @property
    def dense(self) -> Path:
        return self.folder / "dense"

    @property
    def soft_labels(self) -> Path:
        """What tickets learn, and a taught search: of all teachers together."""
        return self.dense / "soft_labels.npy"

    def teacher_labels(self, number: int) -> Path:
        """What one of several teachers says, counted from 1, the dense model; a single one's are the soft labels."""
        alone = len(self.config.all_teachers()) == 1
        return self.soft_labels if alone else self.dense / f"teacher-{number}" / self.soft_labels.name

    def lesson(self, share: float) -> Lesson | None:
        """What the teachers have others learn; nothing where they have no part."""
        return Lesson.load(self.soft_labels, share) if share else None

    @property
    def teacher(self) -> Path:
        return self.folder / "retrained" / "teacher.json"

    def teaching(self) -> Teaching | None:
        """How the teachers teach, as told or as chosen; None while that is open."""
        first, *others = self.config.teachings()
        if others and self.teacher.exists():
            chosen = read_json(self.teacher)
            return Teaching(chosen.get("search_share", 0.0), chosen["share"])  # older runs taught retraining alone
        is_decided = not others or any(self.folder.glob("retrained/*/point.json"))  # older runs had less to choose
        return first if is_decided else None

    @property
    def tickets(self) -> Path:
        """Those that models are retrained from; while that is open, those of the first search."""
        return self.searched(self.teaching() or self.config.teachings()[0])

    def searched(self, teaching: Teaching) -> Path:
        """Tickets of a search by labels, or of a taught one."""
        return self.folder / teaching.tickets

    @property
    def report(self) -> Path:
        return self.folder / "report"

    @property
    def results(self) -> Path:
        return self.folder / "results.json"

    def budget(self, budget: str | int | Budget) -> Budget:
        """A budget as this run writes it, and its folders are named: `30k` where `30000` is asked for."""
        wanted = Budget.parse(budget)
        return next((own for own in self.config.wanted_budgets() if own == wanted), wanted)

    def retrained(self, budget: str | int | Budget) -> Path:
        return self.folder / "retrained" / self.budget(budget).slug

    def bundle(self, budget: str | int | Budget) -> Path:
        return self.folder / "bundles" / self.budget(budget).slug


def _stored(settings: Path) -> RunConfig:
    """The settings of the run in a folder; a file of the same name that is no run's is told, never overwritten."""
    try:
        return load_toml(RunConfig, settings)
    except ConfigError as error:
        raise ConfigError(
            f"{settings.parent} holds a {settings.name} that is not the settings of a run ({error}); choose another "
            "folder (out=…)"
        ) from None
