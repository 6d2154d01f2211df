"""verify_path(): every checksum below a path is compared, of tables, tickets, bundles, checkpoints and JSON files."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from thresher._internal.storage.documents import parse_json, read_bytes, unseal
from thresher._internal.storage.folder_manifest import MANIFEST, open_manifest
from thresher._internal.storage.sealed_arrays import load_array
from thresher.compact.method_table import load_any_table
from thresher.errors import FormatError
from thresher.experiment.run.repair import PREDICTIONS
from thresher.training.checkpoint import Checkpoint

REMEDY = "Restore or create it again."


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
        manifest = open_manifest(folder, required=True, remedy=REMEDY)
        assert manifest is not None
    except FormatError as error:
        return Verified(str(folder), "unknown", 0, str(error))

    def check() -> None:
        manifest.check_sizes()
        manifest.verify()

    return Verified(str(folder), manifest.artefact, len(manifest.files), _problem(check))


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


def _check_json(path: Path) -> None:
    unseal(parse_json(read_bytes(path), path), path)


def _problem(check: Callable[[], object]) -> str | None:
    try:
        check()
    except FormatError as error:
        return str(error)
    return None
