"""prune(): raw files → encoded table → workflow (dense, search, retraining) → bundles → results and figures."""

from pathlib import Path
from typing import Protocol

from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.data.table import EncodedTable
from thresher.embeddings.method_registry import method_name
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError
from thresher.experiment.config import RunConfig
from thresher.experiment.report import PruneResult, write_report
from thresher.experiment.run_folder import Run
from thresher.experiment.run_workflow import RunWorkflow
from thresher.models.model_registry import has_embedding, model_name
from thresher.training.progress import Progress


class RunProgress(Progress, Protocol):
    """A `Progress` that also shows the encoding of raw files."""

    def encoding(self, done: int, total: int | None, message: str) -> None: ...


def prune(
    config: RunConfig,
    *,
    out: str | Path,
    resume: bool = False,
    force: bool = False,
    progress: RunProgress | None = None,
) -> PruneResult:
    """Encode raw files, train the dense model, search, retrain at every budget, and write bundles and a report.

    Args:
        config: all settings; `RunConfig(data=…)` is enough.
        out: folder of the run.
        resume: continue the run in `out`.
        force: replace the run in `out`.
    """
    check_settings(config)
    with Run.started(Path(out), config, resume=resume, force=force) as run:
        table = encode_data(run, progress)
        return run_stages(run, table, progress)


def encode_data(run: Run, progress: RunProgress | None = None) -> EncodedTable:
    """Raw files → encoded table."""
    return encode(build_source(run.config.data), run.encoded, progress=None if progress is None else progress.encoding)


def run_stages(run: Run, table: EncodedTable, progress: Progress | None = None) -> PruneResult:
    """Run every stage after encoding; finished stages are skipped."""
    check_settings(run.config)
    with run.large_tables():
        result = RunWorkflow.of(run, table, progress).run()
    assert result.dense is not None
    return write_report(run, table, result.dense, list(result.pruned.values()))


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
