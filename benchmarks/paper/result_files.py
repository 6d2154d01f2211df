"""Result files of the paper's parts. Settings are stored next to the numbers, so results of other settings never mix.

{"config": …, "seeds" or "points": …, "made_with": commit, versions and machine of every run that added to the file}
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from environment import run_environment
from paper.settings import PaperSettings
from run import settings_match
from thresher._internal.settings import config_to_mapping
from thresher._internal.storage.files import read_json, write_json
from thresher.errors import ConfigError

NameT = TypeVar("NameT", bound=str)


def read_result(path: Path) -> dict[str, Any]:
    """Return a result file; empty if it does not exist."""
    content: dict[str, Any] = read_json(path) if path.exists() else {}
    return content


def read_matching_result(settings: PaperSettings, path: Path, config: object) -> dict[str, Any]:
    """Return a result file that was made with `config`; empty if it does not exist.

    A file of other settings is an error; in quick mode it is ignored.
    """
    content = read_result(path)
    if not content or ("config" in content and settings_match(content["config"], config)):
        return content
    if settings.quick:
        return {}
    raise ConfigError(f"{path} was made with other settings. Delete it to compute it again.")


def read_or_start(settings: PaperSettings, path: Path, config: object, **empty: Any) -> dict[str, Any]:
    """Return a result file or its initial content. Call it again before writing: other runs may have added results."""
    return read_matching_result(settings, path, config) or {"config": config_to_mapping(config), **empty}


def write_result(path: Path, content: dict[str, Any], environment: dict[str, object]) -> None:
    """Write a result file and add the environment of the run to those already listed."""
    environments = content.setdefault("made_with", [])
    if environment not in environments:
        environments.append(environment)
    write_json(path, content)


def compute_missing_seeds(
    settings: PaperSettings, path: Path, config: object, compute: Callable[[int], dict[str, Any]]
) -> None:
    """Compute the seeds that a result file lacks and write each one as soon as it is done."""
    for seed in settings.seeds:
        if str(seed) not in read_or_start(settings, path, config, seeds={})["seeds"]:
            environment = run_environment()  # before a long run: the working tree may change meanwhile
            computed = compute(seed)
            content = read_or_start(settings, path, config, seeds={})
            content["seeds"][str(seed)] = computed
            write_result(path, content, environment)


def read_seeds(folder: Path, names: Iterable[NameT]) -> dict[NameT, list[dict[str, Any]]]:
    """Return name → seeds for the result files that exist in a part's folder."""
    found = {name: read_result(folder / f"{name}.json") for name in names}
    return {name: list(content["seeds"].values()) for name, content in found.items() if content}
