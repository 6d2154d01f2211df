"""Result files of the paper's parts: settings stand beside numbers, so that nothing of other settings is added to them.

{"config": …, "seeds" or "points": …, "made_with": commit, versions and machine of every run that added to it}
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from environment import run_environment
from paper.settings import PaperSettings
from run import settings_match
from thresher._internal.files import read_json, write_json
from thresher._internal.settings import config_to_mapping
from thresher.errors import ConfigError

NameT = TypeVar("NameT", bound=str)


def read_matching_result(settings: PaperSettings, path: Path, config: object) -> dict[str, Any]:
    """What is in a result file, nothing if there is none; one of other settings is refused, in quick passed over."""
    content: dict[str, Any] = read_json(path) if path.exists() else {}
    if not content or ("config" in content and settings_match(content["config"], config)):
        return content
    if settings.quick:
        return {}
    raise ConfigError(f"{path} was made with other settings; delete it to have it made again")


def read_or_start(settings: PaperSettings, path: Path, config: object, **empty: Any) -> dict[str, Any]:
    """What is in a result file, or how it begins; asked again before writing, since others may have added to it."""
    return read_matching_result(settings, path, config) or {"config": config_to_mapping(config), **empty}


def write_result(path: Path, content: dict[str, Any], made: dict[str, object]) -> None:
    """Write a result that has grown; `made` says of what it grew, those before it stay told."""
    told = content.setdefault("made_with", [])
    if made not in told:
        told.append(made)
    write_json(path, content)


def compute_missing_seeds(
    settings: PaperSettings, path: Path, config: object, compute: Callable[[int], dict[str, Any]]
) -> None:
    """Compute what a result file lacks, seed by seed, and write it as it comes."""
    for seed in settings.seeds:
        if str(seed) not in read_or_start(settings, path, config, seeds={})["seeds"]:
            made = run_environment()  # before a long run: the tree may change meanwhile
            computed = compute(seed)
            content = read_or_start(settings, path, config, seeds={})
            content["seeds"][str(seed)] = computed
            write_result(path, content, made)


def read_result(path: Path) -> dict[str, Any]:
    """All of a result file; empty if there is none."""
    content: dict[str, Any] = read_json(path) if path.exists() else {}
    return content


def read_seeds(folder: Path, names: Iterable[NameT]) -> dict[NameT, list[dict[str, Any]]]:
    """Name of a result file in a part's folder → its seeds, of those that are there."""
    found = {name: read_result(folder / f"{name}.json") for name in names}
    return {name: list(content["seeds"].values()) for name, content in found.items() if content}
