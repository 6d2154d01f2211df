"""The parts of a run's folder, and their deletion: files that no run wrote, and its input, are never deleted."""

import glob
import os
from collections.abc import Container, Iterator
from pathlib import Path

from thresher._internal.storage.files import is_temporary_path, remove
from thresher._internal.text import list_first
from thresher.data.config import DataConfig
from thresher.data.table import other_files
from thresher.errors import FolderError
from thresher.experiment.data_argument import DATA_FILE
from thresher.experiment.run.threads import THREADS
from thresher.serving.manifest import bundle_file_names

SETTINGS, ENCODED, SEEDS = "config.toml", "encoded", "seeds"
UNFINISHED = f"{ENCODED}.partial"
PARTS = {SETTINGS, DATA_FILE, ENCODED, UNFINISHED, "floor", "dense", "tables", "tickets", "retrained", "bundles"}
PARTS |= {"report", "results.json", SEEDS, THREADS}
"""Everything that a run writes at the top of its folder."""
REPORT_FILES = {"frontier.png", "frontier.svg", "kept.png", "kept.svg", "index.html", "fields.json"}


def delete_run(folder: Path, data: DataConfig, *, start_from: str | None = None) -> None:
    """Empty the folder of a run; raise if other files would be lost, or `data`, or the model of `start_from`."""
    if not folder.exists():
        return
    for path in _input_paths(data):
        if _is_inside(folder, path):
            raise FolderError(
                f"the input {path} is inside {folder}, which would be replaced. Choose another folder for the run."
            )
    if start_from is not None and _is_inside(folder, start_from):
        raise FolderError(
            f"the trained model of start_from ({start_from}) is inside {folder}, which would be replaced. "
            "Choose another folder for the run."
        )
    if others := sorted(_other_files(folder)):
        raise FolderError(
            f"{folder} is not replaced because it holds files that are not part of a run: {list_first(others)}. "
            "Move them, or choose another folder."
        )
    delete_parts(folder)


def _other_files(folder: Path) -> Iterator[str]:
    """Files that no run wrote: at the top of the folder, and in its table, bundles and report."""
    yield from (path.name for path in folder.iterdir() if not _is_part(path))
    for part in (ENCODED, UNFINISHED):
        yield from (f"{part}/{name}" for name in other_files(folder / part))
    for path in (folder / "report").glob("*"):
        if path.name not in REPORT_FILES and not is_temporary_path(path):
            yield f"report/{path.name}"
    for path in (folder / "bundles").rglob("*"):
        bundle = folder / "bundles" / path.relative_to(folder / "bundles").parts[0]
        is_own = bundle.is_dir() and path.relative_to(bundle).as_posix() in bundle_file_names(bundle)
        if path.is_file() and not is_own and not is_temporary_path(bundle):
            yield path.relative_to(folder).as_posix()


def delete_parts(folder: Path, *, keep: Container[str] = ()) -> None:
    """Delete what a run wrote; its settings last, so that the folder is recognised as a run until then."""
    for path in sorted(folder.iterdir(), key=lambda path: path.name == SETTINGS):
        if _is_part(path) and path.name not in keep:
            remove(path)


def _is_part(path: Path) -> bool:
    return path.name in PARTS or is_temporary_path(path)


def _input_paths(data: DataConfig) -> Iterator[str]:
    """Every file and folder that the settings name, with patterns expanded."""
    patterns = [*data.paths, *data.split.validation_paths, *data.split.test_paths, data.data_dir, data.vocabulary_like]
    for pattern in filter(None, patterns):
        yield from glob.glob(pattern, recursive=True) or [pattern]  # noqa: PTH207 - the pattern may be absolute


def _is_inside(folder: Path, path: str) -> bool:
    places = Path(path).resolve(), Path(os.path.abspath(path))  # noqa: PTH100 - the place of a link, not of its target
    return any(place.is_relative_to(folder.resolve()) for place in places)
