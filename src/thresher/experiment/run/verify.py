"""Checksums of all files below a folder: `verify_path` compares them, `repair` removes damaged parts before a resume.

A stage counts as done because of a small JSON file. If a file that it names is damaged, `repair` removes the stage's
JSON file with a warning, and the resumed run or comparison repeats the stage with the same result.
"""

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from thresher._internal.storage.documents import parse_json, read_bytes, unseal
from thresher._internal.storage.files import clean_up_folder, read_json, remove
from thresher._internal.storage.folder_manifest import MANIFEST, FolderManifest, open_manifest
from thresher._internal.storage.sealed_arrays import load_array
from thresher.compact.method_table import load_any_table
from thresher.errors import FormatError
from thresher.training.checkpoint import Checkpoint
from thresher.training.run_state import CHECKPOINT

REMEDY, REPAIR = "Restore or create it again.", "It is made again."
logger = logging.getLogger(__name__)
POINT, TICKETS, CHOICE = "point.json", "tickets.json", "distillation.json"
BUNDLES, RETRAINED, TRIALS, ENCODED, POINTS = "bundles", "retrained", "trials", "encoded", "points"
WEIGHTS = "weights.safetensors"
PREDICTIONS = re.compile(r"(soft_labels|validation(-seed\d+)?)\.npy")
"""Of teachers for the training rows, and of the floor for the validation rows."""
_OWN_JSON = re.compile(r"(point|tickets|distillation|searches|(choice|trial)-.+)\.json")


@dataclass(frozen=True)
class Verified:
    """One part that was verified; `problem` is None if it is whole."""

    path: str
    kind: str
    num_files: int
    problem: str | None


def verify_path(path: str | Path) -> list[Verified]:
    """Verify a folder or a file, and everything below it that has checksums."""
    path = Path(path)
    if not path.exists():
        raise FormatError(f"{path} does not exist.")
    manifests = sorted({path / MANIFEST, *path.rglob(MANIFEST)}) if path.is_dir() else []
    folders = [manifest.parent for manifest in manifests if manifest.exists()]
    found = [_verify_folder(folder) for folder in folders]
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    for file in files:
        if file.is_file() and not any(file.is_relative_to(folder) for folder in folders):
            found += _verify_file(file)
    if not found:
        raise FormatError(f"{path} holds nothing with a checksum. Choose a run, table, ticket, bundle or file.")
    return found


def _verify_folder(folder: Path) -> Verified:
    try:
        manifest = _open_manifest(folder, REMEDY)
    except FormatError as error:
        return Verified(str(folder), "unknown", 0, str(error))
    return Verified(str(folder), manifest.artefact, len(manifest.files), _problem(partial(_compare, manifest)))


def _verify_file(path: Path) -> Iterator[Verified]:
    if path.suffix == ".json":
        check: Callable[[], object] = partial(_check_json, path)
        yield Verified(str(path), "results", 1, _problem(check))
    elif PREDICTIONS.fullmatch(path.name):
        yield Verified(str(path), "predictions", 1, _problem(partial(load_array, path, REMEDY)))
    elif path.suffix == ".safetensors":
        problem = _problem(partial(Checkpoint.load, path))
        if problem is not None and "is not a Thresher checkpoint" in problem:
            yield Verified(str(path), "embedding table", 1, _problem(partial(load_any_table, path)))
        else:
            yield Verified(str(path), "checkpoint", 1, problem)


def _open_manifest(folder: Path, remedy: str) -> FolderManifest:
    manifest = open_manifest(folder, required=True, remedy=remedy)
    assert manifest is not None, "a manifest that is required and missing is an error"
    return manifest


def _compare(manifest: FolderManifest) -> None:
    """Raise if a file has another size or checksum."""
    manifest.check_sizes()
    manifest.verify()


def _check_json(path: Path) -> None:
    unseal(parse_json(read_bytes(path), path), path)


def _problem(check: Callable[[], object]) -> str | None:
    try:
        check()
    except FormatError as error:
        return str(error)
    return None


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
        if PREDICTIONS.fullmatch(path.name) and (problem := _problem(partial(load_array, path, REPAIR))) is not None:
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
    return _problem(lambda: _compare(_open_manifest(folder, REPAIR)))


def _redo(problem: str, *paths: Path) -> None:
    logger.warning(f"{problem} The stage is repeated.")
    for path in paths:
        if path.exists():
            remove(path)
