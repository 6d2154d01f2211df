"""Experiments of `benchmarks/experiments/`: run by `benchmarks/run.py` and read as points.

Also trainings without a search: dense tables and logistic regression.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from environment import run_environment
from paper.result_files import read_or_start, write_result
from paper.settings import EXPERIMENTS, QUICK_EPOCHS, PaperSettings
from run import current_names, run_seed, settings_match
from thresher._internal.settings import config_to_mapping, load_toml
from thresher._internal.storage.files import read_json
from thresher.embeddings.pep import PepConfig
from thresher.embeddings.uniform import UniformConfig
from thresher.errors import BudgetError
from thresher.experiment.comparison.compare_config import CompareConfig, with_epochs
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import encode_data
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_workflow import RunWorkflow
from thresher.models.base import ModelConfig
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.training.fit import TrainingConfig

QUICK_DECAY_EPOCHS, QUICK_DECAY_RATE = 25, 0.05
THREE_TEACHERS, MIXED_TEACHERS = "three-teachers", "mixed-teachers"
TEACHER_EXPERIMENTS: Mapping[str, Sequence[str]] = {
    THREE_TEACHERS: ("fm",),
    MIXED_TEACHERS: ("fm", "deepfm", "autoint"),
}
"""Kind of teachers → models that have such an experiment."""
DEFAULT_TRAINING = TrainingConfig()


def load_experiment(settings: PaperSettings, name: str) -> RunConfig:
    """Return the settings of an experiment, e.g. `movielens-1m/fm/pep-plan`; small in quick mode."""
    config = load_toml(RunConfig, (EXPERIMENTS / name).with_suffix(".toml"))
    small = settings.shrink_if_quick(config, config.data.source)
    if settings.quick and isinstance(config.embedding, PepConfig) and config.embedding.pressure == "decay":
        optimizer = replace(small.search.optimizer, threshold_learning_rate=QUICK_DECAY_RATE)
        small = replace(small, search=replace(small.search, max_epochs=QUICK_DECAY_EPOCHS, optimizer=optimizer))
    return small


def run_experiment(settings: PaperSettings, name: str, seeds: Iterable[int]) -> None:
    """Run the missing seeds of an experiment; quick mode replaces a result of other settings."""
    config, target = load_experiment(settings, name), result_path(settings, name)
    stored = current_names(read_json(target)["config"]) if target.exists() else None
    if stored and (later := newer_settings(stored, config_to_mapping(config))):
        print(
            f"{target} was made before these settings existed: {', '.join(later)}. It is assumed to have their "
            "defaults. If the defaults change the result, delete the file to compute it again."
        )
    if stored and settings.quick and not settings_match(stored, config):
        target.unlink()
    for seed in seeds:
        try:
            run_seed(
                (EXPERIMENTS / name).with_suffix(".toml"),
                seed,
                config=config,
                results=settings.experiment_results,
                temporary=settings.temporary / "experiments" / digest(config),
            )
        except BudgetError as error:  # a published search may stall; the other results do not depend on it
            print(f"{name} seed {seed}: {error}")


def result_path(settings: PaperSettings, name: str) -> Path:
    return (settings.experiment_results / name).with_suffix(".json")


def read_experiment(settings: PaperSettings, name: str) -> dict[int, Frontier]:
    """Return seed → frontier of the finished seeds."""
    path = result_path(settings, name)
    content = read_json(path)["seeds"] if path.exists() else {}
    return {int(seed): Frontier.from_json(frontier) for seed, frontier in content.items()}


def pruned_points(frontiers: Iterable[Frontier], label: str) -> list[FrontierPoint]:
    return [replace(point, label=label) for frontier in frontiers for point in frontier.points]


def dense_points(frontiers: Iterable[Frontier]) -> list[FrontierPoint]:
    return [frontier.dense for frontier in frontiers if frontier.dense is not None]


def plan_points(settings: PaperSettings, model: str) -> list[FrontierPoint]:
    """Return the points of PEP plan on MovieLens-1M with the recorded settings of a model."""
    return pruned_points(read_experiment(settings, f"movielens-1m/{model}/pep-plan").values(), "pep")


def teacher_experiment(model: str, which: str) -> str:
    """Return the name of a model's experiment with several teachers."""
    return f"movielens-1m/{model}/pep-plan-{which}"


def teacher_experiment_points(settings: PaperSettings, model: str, which: str) -> list[FrontierPoint]:
    return pruned_points(read_experiment(settings, teacher_experiment(model, which)).values(), f"pep, {which}")


def teacher_experiment_names(models: Collection[str]) -> list[str]:
    """Return the names of the models' experiments with several teachers."""
    found = [(model, which) for which, have in TEACHER_EXPERIMENTS.items() for model in have]
    return [teacher_experiment(model, which) for model, which in found if model in models]


def lr_path(settings: PaperSettings, source: str) -> Path:
    """Return the result file of logistic regression."""
    return settings.results / "lr" / f"{source}.json"


def train_baseline(
    settings: PaperSettings,
    path: Path,
    source: str,
    model: ModelConfig,
    width: int,
    seeds: Iterable[int],
    *,
    training: TrainingConfig = DEFAULT_TRAINING,
) -> None:
    """Train a dense table or logistic regression for each missing seed and write its points to `path`."""
    compare = CompareConfig(training=training)
    compare = with_epochs(compare, QUICK_EPOCHS) if settings.quick else compare
    baseline = RunConfig(
        effort="paper",
        data=settings.portable_data(source),
        model=settings.network(model),
        embedding=UniformConfig(embedding_dim=width),
        training=compare.training,
        teacher_share=0.0,
    )
    for seed in (
        seed for seed in seeds if str(seed) not in read_or_start(settings, path, baseline, points={})["points"]
    ):
        environment, config = run_environment(), replace(baseline, data=settings.data(source), seed=seed)
        with Run.started(settings.temporary / "baselines" / digest(config), config, resume=True) as run:
            table = encode_data(run.config.data, run.encoded)
        point = RunWorkflow.of(run, table).train_dense()
        content = read_or_start(settings, path, baseline, points={})
        content["points"][str(seed)] = point.to_json()
        write_result(path, content, environment)
        print(f"{path.stem} seed {seed}: test AUC {point.test_auc:.4f}", flush=True)


def baseline_points(path: Path) -> list[FrontierPoint]:
    """Return the points written by `train_baseline`; empty without a result file."""
    content = read_json(path)["points"] if path.exists() else {}
    return [FrontierPoint.from_json(point) for point in content.values()]


def aucs_of(points: Iterable[FrontierPoint], budget: str | None = None) -> list[float]:
    """Return the test AUCs of all points, or of those with one budget."""
    chosen = [point for point in points if budget is None or point.budget == budget]
    return [point.test_auc for point in chosen if point.test_auc is not None]


def digest(config: object) -> str:
    """Return a short hash of settings."""
    return hashlib.sha256(json.dumps(config_to_mapping(config), sort_keys=True, default=str).encode()).hexdigest()[:8]


def newer_settings(stored: Any, now: Any) -> list[str]:
    """Return the names of settings that did not exist when a result was made."""
    if not stored or not isinstance(now, dict):
        return []
    missing = [key for key in now if key not in stored]
    return missing + [f"{key}.{name}" for key in now if key in stored for name in newer_settings(stored[key], now[key])]
