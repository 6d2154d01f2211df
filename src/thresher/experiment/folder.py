"""The folder of a run before the run starts: whether it is free, and what in it may be thrown away.

Not here: the run (`thresher.experiment.runs`).
"""

import glob
import os
from collections.abc import Container, Iterator
from pathlib import Path

from thresher._internal.files import is_temporary_path, remove
from thresher._internal.text import list_first
from thresher.data.config import DataConfig
from thresher.data.table import other_files
from thresher.errors import FolderError
from thresher.serving.manifest import bundle_file_names

SETTINGS, ENCODED = "config.toml", "encoded"
UNFINISHED = f"{ENCODED}.partial"
PARTS = {
    SETTINGS, ENCODED, UNFINISHED, "dense", "tables", "tickets", "retrained", "bundles", "report",
    "results.json",
}  # fmt: skip
"""All that runs write in their folder, at its top."""
REPORTED = {"frontier.png", "frontier.svg", "kept.png", "kept.svg"}


def is_free(folder: Path) -> bool:
    """Whether a run can start here: there is nothing, or only a table that is encoded and was never trained on."""
    return not folder.exists() or all(
        (path.name == ENCODED and (path / "table.json").exists()) or path.name == UNFINISHED or is_temporary_path(path)
        for path in folder.iterdir()
    )


def throw_away(folder: Path, data: DataConfig) -> None:
    """Empty the folder of a run, for one that reads `data`; raise if something else than a run would be lost."""
    if not folder.exists():
        return
    for path in _named(data):
        if _lies_in(folder, path):
            raise FolderError(
                f"the input {path} is inside {folder}, which would be replaced. Choose another folder for the run."
            )
    if others := sorted(_others(folder)):
        raise FolderError(
            f"{folder} is not replaced because it holds files that are not part of a run: {list_first(others)}. "
            "Move them, or choose another folder."
        )
    clear(folder)


def _others(folder: Path) -> Iterator[str]:
    """What no run has written, at the top of its folder and where people look: in its table, bundles and report."""
    yield from (path.name for path in folder.iterdir() if not _is_part(path))
    for part in (ENCODED, UNFINISHED):
        yield from (f"{part}/{name}" for name in other_files(folder / part))
    for path in (folder / "report").glob("*"):
        if path.name not in REPORTED and not is_temporary_path(path):
            yield f"report/{path.name}"
    for path in (folder / "bundles").rglob("*"):
        bundle = folder / "bundles" / path.relative_to(folder / "bundles").parts[0]
        is_own = bundle.is_dir() and path.relative_to(bundle).as_posix() in bundle_file_names(bundle)
        if path.is_file() and not is_own and not is_temporary_path(bundle):
            yield path.relative_to(folder).as_posix()


def clear(folder: Path, *, keep: Container[str] = ()) -> None:
    """Remove what a run has written; its settings last, so that the rest can be seen to be a run's until then."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == SETTINGS):
        if _is_part(path) and path.name not in keep:
            remove(path)


def _is_part(path: Path) -> bool:
    return path.name in PARTS or is_temporary_path(path)


def _named(data: DataConfig) -> Iterator[str]:
    """Every file and folder the settings name, patterns resolved."""
    patterns = [*data.paths, *data.split.validation_paths, *data.split.test_paths, data.data_dir, data.vocabulary_like]
    for pattern in filter(None, patterns):
        yield from glob.glob(pattern, recursive=True) or [pattern]  # noqa: PTH207 - the pattern may be absolute


def _lies_in(folder: Path, path: str) -> bool:
    places = Path(path).resolve(), Path(os.path.abspath(path))  # noqa: PTH100 - the place of a link, not of its target
    return any(place.is_relative_to(folder.resolve()) for place in places)
