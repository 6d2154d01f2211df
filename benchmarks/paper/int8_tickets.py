"""PEP's tickets quantized to int8, for the comparison with `quantized` tables at equal bytes.

Search, dimension and retraining are those of `pep` in the comparison of methods, with hard labels. Each bundle is then
quantized to int8 and evaluated without further training.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from paper.experiments import digest, load_experiment
from paper.method_comparison import MIN_DELTA
from paper.result_files import compute_missing_seeds, read_result
from paper.settings import PaperSettings
from thresher.cli.console import display
from thresher.embeddings.method_registry import method_grid
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import encode_data
from thresher.experiment.quantize import quantize_bundle
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_workflow import RunWorkflow
from thresher.report.frontier import FrontierPoint
from thresher.training.distillation import HARD_LABELS

LABEL = "pep, int8"
EXPERIMENT = "movielens-1m/fm/pep-plan"


def run(settings: PaperSettings, budgets: tuple[str, ...]) -> None:
    plan = load_experiment(settings, EXPERIMENT)
    first, *_ = method_grid("pep")
    training = replace(plan.training, min_delta=MIN_DELTA)
    config = replace(plan, embedding=first, training=training, budgets=budgets, teacher_share=0.0)
    compute_missing_seeds(
        settings, path(settings), config, lambda seed: {"points": _points(settings, replace(config, seed=seed))}
    )


def _points(settings: PaperSettings, config: RunConfig) -> list[dict[str, Any]]:
    config = replace(config, data=settings.data(config.data.source))
    folder = settings.temporary / "int8_tickets" / digest(config)
    with display() as progress, Run.started(folder, config, resume=True) as run:
        table = encode_data(run.config.data, run.encoded, progress)
        workflow = RunWorkflow.of(run, table, progress)
        retrained = [workflow.prune_to(ticket, HARD_LABELS) for ticket in workflow.find_tickets(HARD_LABELS)]
    return [_quantized(run, point).to_json() for point in retrained]


def _quantized(run: Run, point: FrontierPoint) -> FrontierPoint:
    """Return the point of the same table in int8."""
    bundle = run.bundle(str(point.budget))
    return replace(quantize_bundle(run, bundle, bundle.with_name(f"{bundle.name}-int8"), "int8").point, label=LABEL)


def points(settings: PaperSettings) -> list[FrontierPoint]:
    seeds = read_result(path(settings)).get("seeds", {})
    return [FrontierPoint.from_json(point) for seed in seeds.values() for point in seed["points"]]


def path(settings: PaperSettings) -> Path:
    return settings.results / "frontier" / "fm-int8.json"
