"""Before a run or comparison is resumed: remove what a killed process left, and what is damaged, so that it is redone.

A stage counts as done because of a small JSON file. The files that it names are verified here. If one of them is
damaged, the stage's JSON file is removed with a warning, and the resumed run repeats the stage with the same result.
"""

import logging
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from thresher._internal.storage.files import clean_up_folder, read_json, remove
from thresher._internal.storage.folder_manifest import MANIFEST, open_manifest
from thresher._internal.storage.sealed_arrays import load_array
from thresher.errors import FormatError
from thresher.training.checkpoint import Checkpoint
from thresher.training.run_state import CHECKPOINT

logger = logging.getLogger(__name__)
POINT, TICKETS, CHOICE = "point.json", "tickets.json", "distillation.json"
BUNDLES, RETRAINED, TRIALS, ENCODED, POINTS = "bundles", "retrained", "trials", "encoded", "points"
WEIGHTS = "weights.safetensors"
PREDICTIONS = re.compile(r"(soft_labels|validation(-seed\d+)?)\.npy")
"""Of teachers for the training rows, and of the floor for the validation rows."""
REMEDY = "It is made again."
_OWN_JSON = re.compile(r"(point|tickets|distillation|searches|(choice|trial)-.+)\.json")


def repair(folder: Path) -> None:
    """Make a folder that this process has locked ready to be resumed."""
    clean_up_folder(folder)
    for path in _files(folder, "*.json"):
        is_own = _OWN_JSON.fullmatch(path.name) is not None or path.is_relative_to(folder / POINTS)
        if is_own and (problem := _problem(partial(read_json, path))) is not None:
            _redo(problem, path)
    for marker in _files(folder, TICKETS):
        for ticket in _ticket_folders(marker):
            if (problem := _folder_problem(ticket)) is not None:
                _redo(problem, ticket, marker)
    for bundle in sorted((folder / BUNDLES).glob("*")):
        if bundle.is_dir() and (problem := _folder_problem(bundle)) is not None:
            _redo(problem, bundle, folder / RETRAINED / bundle.name / POINT)
    for marker in (folder / RETRAINED).glob(f"*/{POINT}"):
        if not (folder / BUNDLES / marker.parent.name).exists():
            _redo(f"{folder / BUNDLES / marker.parent.name} is missing.", marker)
    for path in [*_files(folder, CHECKPOINT), *_files(folder, WEIGHTS)]:
        if path.name == CHECKPOINT and _is_done(path, folder):
            path.unlink()  # the process was killed between the result and this
        elif (problem := _problem(partial(Checkpoint.load, path))) is not None:
            _redo(problem, path)
    for path in _files(folder, "*.npy"):
        if PREDICTIONS.fullmatch(path.name) and (problem := _problem(partial(load_array, path, REMEDY))) is not None:
            _redo(problem, path)


def _files(folder: Path, pattern: str) -> Iterator[Path]:
    """Matching files outside of tables, tickets and bundles, which have manifests."""
    for path in sorted(folder.rglob(pattern)):
        inner = [up for up in path.parents if up != folder and up.is_relative_to(folder)]
        if path.is_file() and not any(up.name == ENCODED or (up / MANIFEST).exists() for up in inner):
            yield path


def _ticket_folders(marker: Path) -> list[Path]:
    """The tickets a marker names: in a run `{"tickets": [names]}`, in a comparison `{"folders": {budget: path}}`."""
    if not marker.exists():
        return []
    content = read_json(marker)
    names = content.get("tickets", list(dict(content.get("folders", {})).values()))
    return [marker.parent / str(name) for name in names]


def _is_done(checkpoint: Path, folder: Path) -> bool:
    """Whether the stage that a checkpoint belongs to has its result."""
    stage = checkpoint.parent
    if (stage / POINT).exists() or (stage.parent / POINT).exists() or (stage / TICKETS).exists():
        return True
    return stage.parent.name == TRIALS and (folder / RETRAINED / CHOICE).exists()


def _folder_problem(folder: Path) -> str | None:
    def check() -> None:
        manifest = open_manifest(folder, required=True, remedy=REMEDY)
        assert manifest is not None
        manifest.check_sizes()
        manifest.verify()

    return _problem(check)


def _problem(check: Callable[[], object]) -> str | None:
    try:
        check()
    except FormatError as error:
        return str(error)
    return None


def _redo(problem: str, *paths: Path) -> None:
    logger.warning(f"{problem} The stage is repeated.")
    for path in paths:
        if path.exists():
            remove(path)
