"""Run: the folder of one pruning, and the settings it was started with.

    runs/<name>/{config.toml,threads.json,data.parquet,encoded,floor,dense,tickets,retrained,bundles,report,results.json}

Each folder is named after the stage that fills it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from thresher._internal.processes import wait_for_files, writes_files
from thresher._internal.settings import load_toml, save_toml, validate_config
from thresher._internal.storage.files import exclusive_lock, is_temporary_path, read_json
from thresher.data.config import DataConfig
from thresher.errors import (
    ConfigError,
    FolderError,
    NotRegisteredError,
    RunExistsError,
    RunNotFoundError,
    ThresherError,
)
from thresher.experiment.config import RunConfig, changed_settings
from thresher.experiment.data_argument import DATA_FILE, store_frame
from thresher.experiment.run.run_parts import ENCODED, SEEDS, SETTINGS, UNFINISHED, delete_parts, delete_run
from thresher.experiment.run.threads import THREADS, note_threads
from thresher.experiment.run.verify import repair
from thresher.search.budget import Budget
from thresher.training.distillation import DistillationPlan, SoftLabels


@dataclass(frozen=True)
class Run:
    """The folder and the settings of a run."""

    folder: Path
    config: RunConfig
    table_folder: Path | None = None  # of a further seed, whose table is the first one's

    @classmethod
    def start(
        cls,
        folder: Path,
        config: RunConfig,
        *,
        resume: bool = False,
        force: bool = False,
        frame: pl.DataFrame | None = None,
    ) -> "Run":
        """Create the folder, or resume the run in it. A folder that holds only an encoded table counts as free.

        Args:
            resume: continue a run that was started with the same settings.
            force: delete the run in the folder. Files that no run wrote, and data that this run reads, are not deleted.
            frame: rows to store in the folder, if `config.data` reads them from there.
        """
        if resume and force:
            raise ConfigError("resume and force are mutually exclusive.")
        config, settings = validate_config(config), folder / SETTINGS
        stored = _load_settings(settings) if settings.exists() else None
        if stored is None and not _is_free(folder):
            raise FolderError(f"{folder} is not empty and holds no run. Choose another folder.")
        if force:
            delete_run(folder, DataConfig() if frame is not None else config.data, start_from=config.start_from)
        elif stored is not None and not resume:
            raise RunExistsError(f"{folder} already holds a run. Resume it, replace it, or choose another folder.")
        elif stored is not None and replace(stored, seeds=config.seeds) != config:  # seeds can be added
            raise FolderError(
                f"the run in {folder} was started with other settings ({changed_settings(stored, config)}). Resume it "
                f"with the settings in {settings}, or choose another folder."
            )
        if stored is not None and not force:
            repair(folder)
        save_toml(config, settings)
        note_threads(folder)
        if frame is not None:
            if stored is None:  # rows that an interrupted start left behind
                (folder / DATA_FILE).unlink(missing_ok=True)
            store_frame(frame, folder)
        return cls(folder, config)

    @classmethod
    @contextmanager
    def started(
        cls,
        folder: Path,
        config: RunConfig,
        *,
        resume: bool = False,
        force: bool = False,
        frame: pl.DataFrame | None = None,
    ) -> Iterator["Run"]:
        """`start` with an exclusive lock on the folder; a run refused before its first training step is deleted again.

        Its encoded table stays, since encoding may take long; the next run in the folder uses it.
        """
        if not writes_files():
            wait_for_files()
            yield cls.open(folder)
            return
        existed, fresh = folder.exists(), force or not (folder / SETTINGS).exists()
        with exclusive_lock(folder):
            try:
                run = cls.start(folder, config, resume=resume, force=force, frame=frame)
                wait_for_files()
                try:
                    yield run
                except ThresherError:
                    if fresh and not any(folder.rglob("history.jsonl")):
                        with suppress(OSError):
                            delete_parts(folder, keep={ENCODED})
                    raise
            finally:
                if not existed:
                    with suppress(OSError):  # the folder is not empty
                        folder.rmdir()

    @classmethod
    def open(cls, folder: Path) -> "Run":
        """A run that exists, with the settings it was started with."""
        if not (folder / SETTINGS).exists():
            raise RunNotFoundError(f"{folder} holds no run: config.toml is missing.")
        return cls(folder, load_toml(RunConfig, folder / SETTINGS))

    @contextmanager
    def large_tables(self) -> Iterator[None]:
        """Inside, tables and optimizer states above `map_tables_over_mb` are files in the run's folder."""
        if self.config.map_tables_over_mb is None:
            yield
            return
        from thresher._internal.mapped_tensors import mapped_tables

        with mapped_tables(self.folder / "tables", self.config.map_tables_over_mb << 20):
            yield

    @property
    def encoded(self) -> Path:
        return self.table_folder or self.folder / ENCODED

    def further_seeds(self) -> "list[Run]":
        """The runs of all seeds but the first, each in a folder of its own, with the same table."""
        runs = []
        for seed in range(self.config.seed + 1, self.config.seed + self.config.seeds):
            own = replace(self.config, seed=seed, seeds=1)
            runs.append(Run(self.folder / SEEDS / str(seed), own, self.encoded))
        if writes_files():
            for run in runs:
                save_toml(run.config, run.folder / SETTINGS)
        wait_for_files()
        return runs

    @property
    def floor(self) -> Path:
        """The model without an embedding."""
        return self.folder / "floor"

    @property
    def floor_predictions(self) -> Path:
        """Its predictions of the validation rows."""
        return self.floor / "validation.npy"

    @property
    def dense(self) -> Path:
        return self.folder / "dense"

    @property
    def dense_weights(self) -> Path:
        """The weights that the search starts from."""
        return self.dense / "weights.safetensors"

    @property
    def trials(self) -> Path:
        """Short trainings that decide about distillation."""
        return self.dense / "trials"

    @property
    def soft_labels(self) -> Path:
        """The average of all teachers' soft labels."""
        return self.dense / "soft_labels.npy"

    def teacher_labels(self, number: int) -> Path:
        """The soft labels of one teacher; number 1 is the dense model."""
        alone = len(self.config.all_teachers()) == 1
        return self.soft_labels if alone else self.dense / f"teacher-{number}" / self.soft_labels.name

    def load_soft_labels(self, share: float) -> SoftLabels | None:
        """The soft labels of all teachers; None if their share is 0."""
        return SoftLabels.load(self.soft_labels, share) if share else None

    @property
    def choice(self) -> Path:
        """Which distillation plan was chosen, and why; absent if the settings leave no choice."""
        return self.folder / "retrained" / "distillation.json"

    def distillation(self) -> DistillationPlan | None:
        """The distillation plan, as configured or as chosen on validation; None until it is chosen."""
        first, *others = self.config.candidate_plans()
        if others and self.choice.exists():
            chosen = read_json(self.choice)
            return DistillationPlan(chosen["search_share"], chosen["share"])
        return None if others else first

    @property
    def tickets(self) -> Path:
        """The folder of the tickets that models are retrained from; until that is chosen, of the first search."""
        return self.ticket_folder(self.distillation() or self.config.candidate_plans()[0])

    def ticket_folder(self, plan: DistillationPlan) -> Path:
        """The folder of the tickets of a plan's search."""
        return self.folder / tickets_folder(plan)

    @property
    def report(self) -> Path:
        return self.folder / "report"

    @property
    def results(self) -> Path:
        return self.folder / "results.json"

    def budget(self, budget: str | int | Budget) -> Budget:
        """A budget as this run spells it in folder names: `30k` if `30000` is asked for."""
        wanted = Budget.parse(budget)
        return next((own for own in self.config.wanted_budgets() if own == wanted), wanted)

    def retrained(self, budget: str | int | Budget) -> Path:
        return self.folder / "retrained" / self.budget(budget).slug

    def bundle(self, budget: str | int | Budget) -> Path:
        return self.folder / "bundles" / self.budget(budget).slug


def tickets_folder(plan: DistillationPlan) -> str:
    """Where a plan's search writes its tickets, relative to the run."""
    return f"tickets/soft-labels-{plan.search:g}" if plan.search else "tickets"


def _load_settings(settings: Path) -> RunConfig:
    try:
        return load_toml(RunConfig, settings)
    except NotRegisteredError:
        raise
    except ConfigError as error:
        raise FolderError(f"{settings} does not hold the settings of a run ({error}). Choose another folder.") from None


def _is_free(folder: Path) -> bool:
    """Whether a run can start here: the folder is empty, or holds only an encoded table."""
    return not folder.exists() or all(
        (path.name == ENCODED and (path / "table.json").exists())
        or path.name in (UNFINISHED, THREADS)
        or is_temporary_path(path)
        for path in folder.iterdir()
    )
