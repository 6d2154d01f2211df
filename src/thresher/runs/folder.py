"""The folder of a run before the run starts: whether it is free, and what in it may be thrown away.

Not here: the run (`thresher.runs`).
"""

import glob
import os
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from thresher.data.sources import DataConfig
from thresher.errors import ConfigError
from thresher.files import is_leftover, remove

SETTINGS, ENCODED = "config.toml", "encoded"
UNFINISHED = f"{ENCODED}.partial"
PARTS = {
    SETTINGS, ENCODED, UNFINISHED, "dense", "tables", "tickets", "retrained", "bundles", "report",
    "results.json",
}  # fmt: skip
"""All that runs write in their folder, at its top."""
SHOWN_NAMES = 5


def is_free(folder: Path) -> bool:
    """Whether a run can start here: there is nothing, or only a table that is encoded and was never trained on."""
    return not folder.exists() or all(
        (path.name == ENCODED and (path / "table.json").exists()) or path.name == UNFINISHED or is_leftover(path)
        for path in folder.iterdir()
    )


def throw_away(folder: Path, data: DataConfig) -> None:
    """Empty the folder of a run, for one that reads `data`; raise if something else than a run would be lost."""
    if not folder.exists():
        return
    for path in _named(data):
        if _lies_in(folder, path):
            raise ConfigError(
                f"{path} is to be read, and lies in {folder}, which is to be thrown away (force=True); "
                "choose another folder (out=…)"
            )
    others = sorted(path.name for path in folder.iterdir() if not _is_part(path))
    if others:
        raise ConfigError(
            f"{folder} holds more than a run: {first_names(others)}; move that elsewhere before the run is thrown away "
            "(force=True), or choose another folder (out=…)"
        )
    clear(folder)


def first_names(names: Sequence[str]) -> str:
    """The first few names, and how many more there are.

    >>> first_names("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


def clear(folder: Path, *, keep: Container[str] = ()) -> None:
    """Remove what a run has written; its settings last, so that the rest can be seen to be a run's until then."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == SETTINGS):
        if _is_part(path) and path.name not in keep:
            remove(path)


def _is_part(path: Path) -> bool:
    return path.name in PARTS or is_leftover(path)


def _named(data: DataConfig) -> Iterator[str]:
    """Every file and folder the settings name, patterns resolved."""
    patterns = [*data.paths, *data.split.validation_paths, *data.split.test_paths, data.data_dir, data.vocabulary_like]
    for pattern in filter(None, patterns):
        yield from glob.glob(pattern, recursive=True) or [pattern]  # noqa: PTH207 - the pattern may be absolute


def _lies_in(folder: Path, path: str) -> bool:
    places = Path(path).resolve(), Path(os.path.abspath(path))  # noqa: PTH100 - the place of a link, not of its target
    return any(place.is_relative_to(folder.resolve()) for place in places)
