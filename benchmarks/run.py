"""Run experiments: each TOML file in experiments/ is a RunConfig that `thresher.prune` runs once per seed.

    python benchmarks/run.py benchmarks/experiments/movielens-1m/fm/pep-plan.toml --seeds 0,1,2

Finished seeds are skipped and interrupted runs are resumed (runs are stored in benchmarks/temporary/). A result records
whether the working tree had uncommitted changes. Raw data is read from THRESHER_DATA_DIR.
"""

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from environment import run_environment
from thresher._internal.settings import config_from_mapping, config_to_mapping, load_toml
from thresher._internal.storage.files import read_json, write_json
from thresher.cli.console import display
from thresher.data.encode.sources import differences
from thresher.errors import ConfigError, ThresherError
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import prune
from thresher.search.schedule import PLAN_EPOCHS
from thresher.training.checkpoint import read_history

HERE = Path(__file__).parent
EXPERIMENTS, RESULTS, TEMPORARY = HERE / "experiments", HERE / "results", HERE / "temporary"
RENAMED_SETTINGS = {"teach_search": "distill_search"}
"""Name in the committed result files → name now."""
METRICS = ("validation_auc", "validation_logloss", "test_auc", "test_logloss", "test_rare_auc", "test_calibration")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="+", type=Path)
    parser.add_argument("--seeds", default="0,1,2", help="comma-separated")
    arguments = parser.parse_args()
    for experiment in arguments.experiments:
        for seed in map(int, arguments.seeds.split(",")):
            try:
                run_seed(experiment, seed)
            except ThresherError as error:
                sys.exit(str(error))


def run_seed(
    experiment: Path,
    seed: int,
    *,
    config: RunConfig | None = None,
    results: Path = RESULTS,
    temporary: Path = TEMPORARY,
) -> None:
    """Run one seed of an experiment and add it to the result file.

    Args:
        config: replaces the settings of the file; `results` should then be another folder.
    """
    name = experiment.resolve().relative_to(EXPERIMENTS.resolve()).with_suffix("")
    target = (results / name).with_suffix(".json")
    result = _read_or_start(target, name)
    settings = load_toml(RunConfig, experiment) if config is None else config
    if "config" in result and not settings_match(result["config"], settings):
        changed = "; ".join(differences(result["config"], config_to_mapping(settings))[:3])
        raise ConfigError(f"{target} was made with other settings ({changed}). Delete it to compute it again.")
    if str(seed) in result["seeds"]:
        print(f"{name} seed {seed}: finished, skipped")
        return
    config = replace(settings, seed=seed)
    if config.data.data_dir is not None:  # an absolute path is not changed
        data_dir = raw_data() / config.data.data_dir
        config = replace(config, data=replace(config.data, data_dir=str(data_dir)))
    environment = run_environment()  # before a long run: the working tree may change meanwhile
    with display(quiet=not sys.stderr.isatty()) as progress:
        pruned = prune(config, out=temporary / name / str(seed), resume=True, progress=progress)
    result = _read_or_start(target, name)  # other runs may have added seeds meanwhile
    result["config"] = config_to_mapping(settings)
    history = read_history(pruned.run.tickets / "history.jsonl")
    kept = {record["epoch"]: record["num_kept"] for record in history if "num_kept" in record}
    result["seeds"][str(seed)] = {**pruned.frontier.to_json(), "kept_by_epoch": kept, "made_with": environment}
    result["summary"] = summary(result["seeds"].values())
    write_json(target, result)
    for row in result["summary"]:
        auc = row["test_auc"]
        print(
            f"{name} {row['budget'] or 'dense':>8}: test AUC {auc['mean']:.4f} ± {auc['sd']:.4f} ({auc['seeds']} seeds)"
        )


def _read_or_start(target: Path, name: Path) -> dict[str, Any]:
    return read_json(target) if target.exists() else {"experiment": name.as_posix(), "seeds": {}}


def raw_data() -> Path:
    if "THRESHER_DATA_DIR" not in os.environ:
        raise ConfigError("THRESHER_DATA_DIR is not set. Set it to the folder of the raw data.")
    return Path(os.environ["THRESHER_DATA_DIR"])


def current_names(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored settings with the names that settings have now."""
    return {
        RENAMED_SETTINGS.get(name, name): current_names(value) if isinstance(value, Mapping) else value
        for name, value in stored.items()
    }


def settings_match(stored: Mapping[str, Any], config: object) -> bool:
    """Return whether stored settings equal `config`; settings that were not stored have their default value."""
    settings = current_names(stored)
    if isinstance(config, RunConfig) and "effort" not in settings:
        settings = _with_effort_paper(settings)
    try:
        return config_from_mapping(type(config), settings) == config
    except ConfigError:  # a stored setting no longer exists
        return False


def _with_effort_paper(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that were stored before efforts existed: those of `paper`, which decides two of them now."""
    search = dict(stored.get("search", {}))
    if search.get("plan_epochs") == PLAN_EPOCHS:
        del search["plan_epochs"]
    others = {name: value for name, value in stored.items() if (name, value) != ("rewind", "initial")}
    return others | {"effort": "paper", "search": search}


def result_effort(result: Mapping[str, Any]) -> str:
    """The effort that a result file was made with; `paper` if it is older than efforts. Raises if seeds differ."""
    stored = {seed.get("effort") or "paper" for seed in result["seeds"].values()} | {
        result["config"].get("effort", "paper")
    }
    if len(stored) > 1:
        raise ConfigError(f"{result['experiment']} holds results of effort {', '.join(sorted(stored))}. Make it again.")
    return stored.pop()


def summary(seeds: "list[dict]") -> list[dict]:
    """Return mean and standard deviation over seeds for each budget, the dense model first."""
    by_budget: dict[str | None, list[dict]] = {}
    for seed in seeds:
        for point in ([seed["dense"]] if seed["dense"] else []) + seed["points"]:
            by_budget.setdefault(point.get("budget"), []).append(point)
    return [
        {"budget": budget, "num_parameters": points[0]["num_parameters"]}
        | {
            "storage_bytes": round(mean(point["storage_bytes"] for point in points)),
            **{name: spread([point[name] for point in points]) for name in METRICS if name in points[0]},
        }
        for budget, points in by_budget.items()
    ]


def spread(values: list[float]) -> dict[str, float | int]:
    return {"mean": mean(values), "sd": stdev(values) if len(values) > 1 else 0.0, "seeds": len(values)}


if __name__ == "__main__":
    main()
