"""Methods under `thresher compare`, at an experiment's settings: their points copied into one result file.

Data, search and training are those of the experiment, so that all share one protocol.
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
from thresher.cli.progress import display
from thresher.errors import ConfigError
from thresher.experiment.compare import compare
from thresher.experiment.compare_config import CompareConfig
from thresher.experiment.compared_points import FLOOR, ComparedPoint
from thresher.experiment.grids import method_grid
from thresher.models.model_registry import model_config, model_name

MIN_DELTA = 0.0001
"""An epoch must gain more validation AUC than this to count: halves the long tails of retraining, for all alike."""


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
    """Run one method with so many seeds, from 0; those whose points are in the result file `path` are passed over.

    Args:
        experiment: whose data, model, search and training all methods share, e.g. `movielens-1m/fm/pep-plan`.
    """
    plan = load_experiment(settings, experiment)
    source, model = plan.data.source, model_name(plan.model)
    if plan.model != model_config(model, source) and not settings.quick:
        raise ConfigError(f"{experiment}.toml has another network than the settings recorded for {source}")
    config = CompareConfig(
        data=replace(plan.data, data_dir=settings.data(source).data_dir),
        methods=(method,),
        models=(model,),
        seeds=seeds,
        trials=1 if settings.quick else trials,
        search=plan.search,
        training=replace(plan.training, min_delta=MIN_DELTA),
    )
    shared = replace(config.shared(), data=plan.data)  # without the place of the data on this machine
    stored = read_or_start(settings, path, shared, done={}, points=[], unmet={})
    known = stored["done"].get(method, {}).get("budgets", [])
    budgets = tuple(dict.fromkeys([*known, *budgets]))  # all seeds have all of them
    config = replace(config, budgets=budgets)
    grid = [config_to_mapping(embedding) for embedding in method_grid(method)[: config.trials]]
    done = stored["done"].get(method, {"seeds": 0, "budgets": list(budgets), "grid": grid})
    if done["grid"] != grid:
        raise ConfigError(f"{path}: {method} was made with another grid; delete its points to have them made again")
    more_budgets = not set(budgets) <= set(done["budgets"])
    if done["seeds"] >= seeds and not more_budgets:
        return
    if more_budgets:  # for all seeds there are, or some would have fewer budgets than others
        seeds = max(seeds, done["seeds"])
        config = replace(config, seeds=seeds)
    elif config.trials == 1:  # no choice to be made on the first seed: it need not be there
        config = replace(config, first_seed=done["seeds"], seeds=seeds - done["seeds"])
    made = run_environment()  # before a long run: the tree may change meanwhile
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
    write_result(path, stored, made)


def points(path: Path) -> list[dict[str, Any]]:
    """The points of a model and of the floor, as JSON with `model`, `config`, seconds and epochs."""
    found: list[dict[str, Any]] = read_result(path).get("points", [])
    return found


def stopped_at_last_epoch(content: Mapping[str, Any]) -> str:
    """Which retrainings ended at the last epoch they may have, and of which that is not known."""
    every = [point for point in content.get("points", []) if point["model"] != FLOOR]
    counted = [point for point in every if "retrain_epochs" in point]
    if not counted:
        return ""
    last = content["config"]["training"]["max_epochs"]
    methods = Counter(point["label"] for point in counted)
    ended = Counter(point["label"] for point in counted if point["retrain_epochs"] >= last)
    never = [f"`{label}`" for label in dict.fromkeys(point["label"] for point in every) if label not in methods]
    told = f"Epochs were counted of {len(counted)} of the {len(every)} trainings" if len(counted) < len(every) else ""
    told += f" (of none of {', '.join(never)})" if never else ""
    told = f"{told}. " if told else ""
    if not ended:
        return f"{told}Patience ended all of {'these' if told else 'the trainings'}, before the {last}th epoch."
    which = ", ".join(f"`{method}` {ended[method]} of {methods[method]}" for method in methods if ended[method])
    return f"{told}{ended.total()} went on to the last, the {last}th: {which}; patience ended the others."


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
