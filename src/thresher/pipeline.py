"""prune(): the whole path on one screen.

    raw files → encoded → tickets → dense → retrained → bundles → results, report

Each stage is a function of `thresher.stages`, the last one of `thresher.run_report`. It takes up its own unfinished
work and passes over what is done, so a run killed anywhere can be resumed.
"""

from pathlib import Path

from thresher.run_report import PruneResult, report
from thresher.runs import Run, RunConfig
from thresher.stages import (
    RunProgress,
    batches,
    choose_teacher_share,
    encode_data,
    retrain,
    search,
    train_dense,
)


def prune(
    config: RunConfig,
    *,
    out: str | Path,
    resume: bool = False,
    force: bool = False,
    progress: RunProgress | None = None,
) -> PruneResult:
    """From raw files to pruned models that predict: encode, search once, train dense, retrain, export, report.

    Args:
        config: all settings; `RunConfig(data=…)` is enough.
        out: folder of the run.
        resume: go on with the run in `out`.
        force: throw away the run in `out`.
    """
    with Run.started(Path(out), config, resume=resume, force=force) as run:
        table = encode_data(run, progress)
        data = batches(run, table)
        tickets = search(run, table, data, progress)  # before anything long: impossible settings are told at once
    dense = train_dense(run, table, data, progress)
    share = choose_teacher_share(run, table, data, tickets, progress)
    points = [retrain(run, table, data, ticket, share, progress) for ticket in tickets]
    return report(run, table, dense, points)
