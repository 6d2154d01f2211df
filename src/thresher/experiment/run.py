"""Run: the folder one pruning lives in, and the settings it was started with.

    runs/<name>/{config.toml,encoded,dense,tickets,retrained,bundles,report,results.json}

Each folder is named after the stage that fills it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from thresher._internal.files import exclusive_lock, read_json
from thresher._internal.settings import load_toml, save_toml, validate_config
from thresher.errors import (
    ConfigError,
    FolderError,
    RunExistsError,
    RunNotFoundError,
    ThresherError,
)
from thresher.experiment.config import RunConfig, what_differs
from thresher.experiment.folder import ENCODED, SETTINGS, clear, is_free, throw_away
from thresher.search.budget import Budget
from thresher.training.distillation import DistillationPlan, SoftLabels


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
            raise ConfigError("`resume` and `force` are mutually exclusive.")
        config, settings = validate_config(config), folder / SETTINGS
        stored = _stored(settings) if settings.exists() else None
        if stored is None and not is_free(folder):
            raise FolderError(f"{folder} is not empty and holds no run. Choose another folder.")
        if force:
            throw_away(folder, config.data)
        elif stored is not None and not resume:
            raise RunExistsError(f"{folder} already holds a run. Resume it, replace it, or choose another folder.")
        elif stored is not None and stored != config:
            raise FolderError(
                f"the run in {folder} was started with other settings ({what_differs(stored, config)}). Resume it "
                f"with those (see {settings}), or choose another folder."
            )
        save_toml(config, settings)
        return cls(folder, config)

    @classmethod
    @contextmanager
    def started(cls, folder: Path, config: RunConfig, *, resume: bool = False, force: bool = False) -> Iterator["Run"]:
        """`start`, with no other process in the folder; a run refused before its first training step clears it again.

        Only its table stays, which may have taken long to encode: the next run here uses it.
        """
        existed, fresh = folder.exists(), force or not (folder / SETTINGS).exists()
        with exclusive_lock(folder):
            try:
                run = cls.start(folder, config, resume=resume, force=force)
                try:
                    yield run
                except ThresherError:
                    if fresh and not any(folder.rglob("history.jsonl")):
                        with suppress(OSError):
                            clear(folder, keep={ENCODED})
                    raise
            finally:
                if not existed:
                    with suppress(OSError):  # there is something in it
                        folder.rmdir()

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """A run that exists, with the settings it was started with."""
        if not (folder / SETTINGS).exists():
            raise RunNotFoundError(f"{folder} holds no run: config.toml is missing.")
        return cls(folder, load_toml(RunConfig, folder / SETTINGS))

    @contextmanager
    def large_tables(self) -> Iterator[None]:
        """Inside, tables are kept as `map_tables_over_mb` says."""
        if self.config.map_tables_over_mb is None:
            yield
            return
        from thresher._internal.mapped_tensors import mapped_tables

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

    def load_soft_labels(self, share: float) -> SoftLabels | None:
        """The soft labels of all teachers; None if their share is 0."""
        return SoftLabels.load(self.soft_labels, share) if share else None

    @property
    def teacher(self) -> Path:
        return self.folder / "retrained" / "teacher.json"

    def teaching(self) -> DistillationPlan | None:
        """How the teachers teach, as told or as chosen; None while that is open."""
        first, *others = self.config.candidate_plans()
        if others and self.teacher.exists():
            chosen = read_json(self.teacher)
            return DistillationPlan(
                chosen.get("search_share", 0.0), chosen["share"]
            )  # older runs taught retraining alone
        return None if others else first

    @property
    def tickets(self) -> Path:
        """Those that models are retrained from; while that is open, those of the first search."""
        return self.searched(self.teaching() or self.config.candidate_plans()[0])

    def searched(self, teaching: DistillationPlan) -> Path:
        """Tickets of a search by labels, or of a taught one."""
        return self.folder / tickets_folder(teaching)

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
        raise FolderError(f"{settings} does not hold the settings of a run ({error}). Choose another folder.") from None


def tickets_folder(plan: DistillationPlan) -> str:
    """Where a plan's search puts its tickets, inside the folder of a run."""
    return f"tickets/soft-labels-{plan.search:g}" if plan.search else "tickets"
