"""prune(): raw files → encoded table → workflow (dense, search, retraining) → bundles → results and figures."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import overload

from thresher._internal.processes import Processes, current_processes, training_together, wait_for_files, writes_files
from thresher.data.config import DataConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.data.table import EncodedTable
from thresher.embeddings.method_registry import method_name
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError
from thresher.experiment.config import RunConfig
from thresher.experiment.data_argument import Data, output_folder, run_settings
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_report import write_mean, write_report
from thresher.experiment.run.run_workflow import RunWorkflow
from thresher.models.base import ModelConfig
from thresher.models.model_registry import has_embedding, model_name
from thresher.report.figures import figures_html
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.report.progress_display import run_progress
from thresher.report.remarks import remarks
from thresher.report.tables import frontier_html, plain_table
from thresher.search.budget import Budgets
from thresher.training.progress import Progress, Renamed, RunProgress


@dataclass(frozen=True)
class PruneResult:
    """The result of `prune`: sizes, metrics and files.

    Attributes:
        frontier: the dense model's point and one per budget.
    """

    run: Run
    frontier: Frontier

    @property
    def recommended(self) -> FrontierPoint | None:
        """The smallest size within `max_auc_drop`; None if that was not set or no size is within it."""
        drop = self.run.config.max_auc_drop
        return None if drop is None else self.frontier.smallest_within(drop)

    @property
    def recommendation(self) -> list[str]:
        """Which size `max_auc_drop` recommends and why that may be noise, as sentences; none if it was not set."""
        drop = self.run.config.max_auc_drop
        if drop is None:
            return []
        if self.recommended is None:
            found = f"No size keeps validation AUC within {drop} of the dense model. Allow more, or set budgets."
        else:
            found = f"Smallest size within {drop} of the dense model's validation AUC: {self.recommended.budget}"
        doubts = self.frontier.metadata.get("doubts")
        return [found, *([str(doubts)] if doubts else [])]

    def __str__(self) -> str:
        return "\n".join([plain_table(self.frontier), *remarks(self.frontier), *self.recommendation])

    def _repr_html_(self) -> str:
        """Table and figure, in a notebook."""
        below = "".join(f"<p>{escape(sentence)}</p>" for sentence in self.recommendation)
        return frontier_html(self.frontier) + below + figures_html([self.run.report / "frontier.png"])


@overload
def prune(
    data: RunConfig,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    progress: RunProgress | None = None,
) -> PruneResult: ...
@overload
def prune(
    data: Data,
    *,
    label: str | None = None,
    budgets: Budgets | None = None,
    model: str | ModelConfig | None = None,
    config: RunConfig | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    progress: RunProgress | None = None,
) -> PruneResult: ...
def prune(
    data: RunConfig | Data,
    *,
    label: str | None = None,
    budgets: Budgets | None = None,
    model: str | ModelConfig | None = None,
    config: RunConfig | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    progress: RunProgress | None = None,
) -> PruneResult:
    """Encode the data, train the dense model, search, retrain at every budget, and write bundles and a report.

    If several processes of torch.distributed call it, they train together: each batch is shared among them.

    Args:
        data: a pandas or polars data frame, the path of a file, or all settings as a `RunConfig`. A data frame is
            stored in the run's folder.
        label: label column; guessed by default. This and the next three are for data frames and files.
        budgets: target sizes, e.g. `["50k", "2%"]`.
        model: `"fm"`, `"deepfm"`, `"autoint"` or the config of a model.
        config: further settings; those of `config.data` describe the columns.
        out: folder of the run; by default a new folder `runs/prune-<date>-<time>`.
        resume: continue the run in `out`.
        force: replace the run in `out`.
        progress: a display; by default bars on a terminal, lines in a notebook, and nothing elsewhere.
    """
    with training_together(Processes.of()), run_progress(progress) as shown:
        folder = common_folder(output_folder(out, "prune", resume=resume))
        settings, frame = run_settings(data, folder, label, budgets, model, config)
        check_settings(settings)
        with Run.started(folder, settings, resume=resume, force=force, frame=frame) as run:
            table = encode_once(run, shown)
            return run_stages(run, table, shown)


def common_folder(folder: Path) -> Path:
    """The folder of the first process, where names depend on the time."""
    processes = current_processes()
    return folder if processes is None else Path(processes.gather_objects(str(folder))[0])


def encode_once(run: Run, progress: RunProgress | None = None) -> EncodedTable:
    """Encode the data of a run in the first process; the others open the table."""
    table = encode_data(run.config.data, run.encoded, progress) if writes_files() else None
    wait_for_files()
    return EncodedTable.open(run.encoded) if table is None else table


def encode_data(config: DataConfig, folder: Path, progress: RunProgress | None = None) -> EncodedTable:
    """Raw files → encoded table; the columns are shown before they are read."""
    source = build_source(config)
    if progress is None:
        return encode(source, folder)
    progress.columns(source)
    return encode(source, folder, progress=progress.encoding)


def run_stages(run: Run, table: EncodedTable, progress: Progress | None = None) -> PruneResult:
    """Run every stage after encoding, for every seed; finished stages are skipped."""
    first = _run_seed(run, table, progress)
    if run.config.seeds == 1:
        return PruneResult(run, first)
    further = run.further_seeds()
    others = [_run_seed(other, table, Renamed(progress, f"seed {other.config.seed}: {{}}")) for other in further]
    return PruneResult(run, write_mean([run, *further], table, [first, *others]))


def _run_seed(run: Run, table: EncodedTable, progress: Progress | None) -> Frontier:
    result = RunWorkflow.of(run, table, progress).run()
    assert result.dense is not None
    return write_report(run, table, result.dense, list(result.pruned.values()), result.floor)


def check_settings(config: RunConfig) -> None:
    """Raise, before anything is encoded or trained, if no pruned model can come of these settings."""
    searches_first_order = isinstance(config.embedding, PepConfig) and config.embedding.first_order
    if not has_embedding(config.model) and not searches_first_order:
        raise ConfigError(
            f"model {model_name(config.model)!r} has no embedding to prune. Choose another model (fm, deepfm, "
            "autoint), or prune its first-order weights: method pep with embedding.first_order = true."
        )
    if config.rewind == "final" and not config.is_searched:
        raise ConfigError(
            f'rewind = "final" continues from a search, and method {method_name(config.embedding)!r} has none. '
            'Use rewind = "initial".'
        )
