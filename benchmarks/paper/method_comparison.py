"""Methods run by `thresher compare` with the settings of an experiment; their points are copied into one result file.

Data, search and training are those of the experiment, so all methods share one protocol.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from environment import run_environment
from paper.experiments import digest, load_experiment
from paper.result_files import read_or_start, read_result, write_result
from paper.settings import PaperSettings
from thresher._internal.settings import config_to_mapping
from thresher.cli.console import display
from thresher.embeddings.method_registry import method_grid
from thresher.errors import ConfigError
from thresher.experiment.compare import compare
from thresher.experiment.comparison.compare_config import CompareConfig
from thresher.experiment.comparison.compared_points import FLOOR, ComparedPoint
from thresher.models.model_registry import model_config, model_name

MIN_DELTA = 0.0001
"""Smallest gain of validation AUC that counts as an improvement; it halves the time of retraining, for all methods."""


def compare_method(
    settings: PaperSettings,
    path: Path,
    experiment: str,
    method: str,
    budgets: Sequence[str],
    *,
    seeds: int,
    trials: int,
) -> None:
    """Run one method with the seeds 0 … `seeds` − 1 and skip the seeds that the result file `path` already has.

    Args:
        experiment: provides data, model, search and training for all methods, e.g. `movielens-1m/fm/pep-plan`.
    """
    plan = load_experiment(settings, experiment)
    source, model = plan.data.source, model_name(plan.model)
    if plan.model != model_config(model, source) and not settings.quick:
        raise ConfigError(f"{experiment}.toml has a network that differs from the settings recorded for {source}")
    config = CompareConfig(
        data=replace(plan.data, data_dir=settings.data(source).data_dir),
        methods=(method,),
        models=(model,),
        seeds=seeds,
        rival=False,  # the stored comparisons were made without
        trials=1 if settings.quick else trials,
        search=plan.search,
        training=replace(plan.training, min_delta=MIN_DELTA),
    )
    shared = replace(config.shared(), data=plan.data)  # without the path on this machine
    stored = read_or_start(settings, path, shared, done={}, points=[], unmet={})
    known = stored["done"].get(method, {}).get("budgets", [])
    budgets = tuple(dict.fromkeys([*known, *budgets]))  # all seeds have the same budgets
    config = replace(config, budgets=budgets)
    grid = [config_to_mapping(embedding) for embedding in method_grid(method)[: config.trials]]
    done = stored["done"].get(method, {"seeds": 0, "budgets": list(budgets), "grid": grid})
    if done["grid"] != grid:
        raise ConfigError(f"{path}: {method} was made with another grid. Delete its points to compute them again.")
    more_budgets = not set(budgets) <= set(done["budgets"])
    if done["seeds"] >= seeds and not more_budgets:
        return
    if more_budgets:  # for all seeds, so that all have the same budgets
        seeds = max(seeds, done["seeds"])
        config = replace(config, seeds=seeds)
    elif config.trials == 1:  # the first seed chooses no setting, so it is not needed
        config = replace(config, first_seed=done["seeds"], seeds=seeds - done["seeds"])
    environment = run_environment()  # before a long run: the working tree may change meanwhile
    with display() as progress:
        folder = settings.temporary / path.parent.name / f"{path.stem}-{digest(shared)}"
        found = compare(config, out=folder, progress=progress)
    stored = read_or_start(settings, path, shared, done={}, points=[], unmet={})
    kept = {_key(point): point for point in stored["points"]}
    kept |= {_key(point): point for point in map(_content, found.points) if point["model"] in (model, FLOOR)}
    stored["points"] = list(kept.values())
    stored["unmet"] |= {f"{at} {budget}": reason for (_, at, budget), reason in found.unmet.items()}
    seeds = max(seeds, stored["done"].get(method, done)["seeds"])
    stored["done"][method] = {"seeds": seeds, "budgets": list(budgets), "grid": grid}
    write_result(path, stored, environment)


def points(path: Path) -> list[dict[str, Any]]:
    """Return the points of a model and of logistic regression as JSON with `model`, `config`, seconds and epochs."""
    found: list[dict[str, Any]] = read_result(path).get("points", [])
    return found


def stopped_at_last_epoch(content: Mapping[str, Any]) -> str:
    """State which retrainings ended at the maximum number of epochs, and for which this is not recorded."""
    every = [point for point in content.get("points", []) if point["model"] != FLOOR]
    known = [point for point in every if "retrain_epochs" in point]
    if not known:
        return ""
    last = content["config"]["training"]["max_epochs"]
    trained = Counter(point["label"] for point in known)
    ended = Counter(point["label"] for point in known if point["retrain_epochs"] >= last)
    unknown = [f"`{label}`" for label in dict.fromkeys(point["label"] for point in every) if label not in trained]
    text = ""
    if len(known) < len(every):
        without = f" (none of {', '.join(unknown)})" if unknown else ""
        text = f"The number of epochs is recorded for {len(known)} of {len(every)} trainings{without}. "
    if not ended:
        return f"{text}All of {'them' if text else 'the trainings'} stopped early, before epoch {last}."
    methods = ", ".join(f"`{label}` {ended[label]} of {trained[label]}" for label in trained if ended[label])
    return f"{text}{ended.total()} reached the last epoch, {last}: {methods}. The others stopped early."


def _content(point: ComparedPoint) -> dict[str, Any]:
    return {
        **point.frontier_point().to_json(),
        "model": point.model,
        "config": dict(point.config),
        "search_seconds": point.search_seconds,
        "search_epochs": point.search_epochs,
        "retrain_seconds": point.retrain_seconds,
        "retrain_epochs": point.retrain_epochs,
    }


def _key(point: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(point.get(name) for name in ("model", "label", "budget", "num_parameters", "seed"))
