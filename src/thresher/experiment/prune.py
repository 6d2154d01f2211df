"""prune(): the whole path on one screen.

    raw files → encoded → tickets → dense → (tickets it taught) → retrained → bundles → results, report

Each stage resumes its own unfinished work and skips what is done, so a run killed anywhere can be resumed.
"""

from pathlib import Path

from thresher.data.batches.split_batches import SplitBatches
from thresher.data.table import EncodedTable
from thresher.embeddings.method_registry import method_name
from thresher.embeddings.pep import PepConfig
from thresher.errors import SettingsConflictError
from thresher.experiment.dense import train_dense
from thresher.experiment.report import PruneResult, write_report
from thresher.experiment.runs import Run, RunConfig
from thresher.experiment.stages import (
    RunProgress,
    batches,
    choose_teaching,
    encode_data,
    find_run_tickets,
    retrain_run_ticket,
)
from thresher.models.model_registry import has_embedding, model_name


def prune(
    config: RunConfig,
    *,
    out: str | Path,
    resume: bool = False,
    force: bool = False,
    progress: RunProgress | None = None,
) -> PruneResult:
    """From raw files to pruned models that predict: encode, search, train dense, retrain, export, report.

    Args:
        config: all settings; `RunConfig(data=…)` is enough.
        out: folder of the run.
        resume: go on with the run in `out`.
        force: throw away the run in `out`.
    """
    check_settings(config)
    with Run.started(Path(out), config, resume=resume, force=force) as run:
        table = encode_data(run, progress)
        data = batches(run, table)
        # before dense training, unless that is to teach it: impossible settings are told at once
        find_run_tickets(run, table, data, config.candidate_plans()[0], progress)
        return retrain_all(run, table, data, progress)


def check_settings(config: RunConfig) -> None:
    """Raise, before anything is encoded or trained, if no pruned model can come of these settings whatever the data.

    Not part of the settings' own checks: dense models are trained with them, too.
    """
    searches_first_order = isinstance(config.embedding, PepConfig) and config.embedding.first_order
    if not has_embedding(config.model) and not searches_first_order:
        raise SettingsConflictError(
            f"model {model_name(config.model)!r} has no embedding to prune. Choose another model (fm, deepfm, "
            "autoint), or prune its first-order weights: method pep with embedding.first_order = true."
        )
    if config.rewind == "final" and not config.is_searched:
        raise SettingsConflictError(
            f'rewind = "final" continues from a search, and method {method_name(config.embedding)!r} has none. '
            'Use rewind = "initial".'
        )


def retrain_all(run: Run, table: EncodedTable, data: SplitBatches, progress: RunProgress | None = None) -> PruneResult:
    """From the tickets of a search to pruned models: train dense, which may teach another search, retrain, report."""
    check_settings(run.config)
    dense = train_dense(run, table, data, progress)
    teaching = choose_teaching(run, table, data, progress)
    tickets = find_run_tickets(run, table, data, teaching, progress)
    points = [retrain_run_ticket(run, table, data, ticket, teaching, progress) for ticket in tickets]
    return write_report(run, table, dense, points)
