"""`bundle.json`, the manifest of a bundle: model settings, table shapes, metadata, checksums. Does not need torch."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from thresher._internal.files import read_json
from thresher.errors import FormatError

T = TypeVar("T")
FORMAT = "thresher.bundle"
VERSION = 1


@dataclass(frozen=True)
class Manifest:
    """The content of `bundle.json`: model settings, shapes `(N, D)` of tables, tables that budgets count, metadata."""

    folder: Path
    model: Mapping[str, Any]
    tables: Mapping[str, tuple[int, int]]
    searched: frozenset[str]
    metadata: Mapping[str, Any]

    @property
    def network_path(self) -> Path:
        return self.folder / "network.safetensors"

    def load_tables(self, load: Callable[..., T]) -> dict[str, T]:
        """Load all tables with `load(path, verify=False)`, and check their shapes."""
        tables = {}
        for name, shape in self.tables.items():
            table: Any = load(self.folder / "tables" / f"{name}.safetensors", verify=False)  # read_manifest verified it
            if table.shape != shape:
                raise FormatError(
                    f"{self.folder}: table {name!r} has shape {table.shape}, but bundle.json records {shape}. Export "
                    "the model again"
                )
            tables[name] = table
        return tables


def read_manifest(folder: Path, *, verify: bool = True) -> Manifest:
    """Read `bundle.json` and check that all its files exist; with `verify`, also compare their checksums."""
    content = read_json(folder / "bundle.json")
    found, version = content.get("format"), content.get("version")
    if (found, version) != (FORMAT, VERSION):
        raise FormatError(
            f"{folder} has format {found!r} version {version!r}, expected {FORMAT!r} version {VERSION}. Upgrade "
            "thresher, or export the model again."
        )
    try:
        _check_files(folder, content["files"], verify=verify)
        tables = {name: (int(rows), int(columns)) for name, (rows, columns) in content["tables"].items()}
        searched = frozenset(map(str, content["searched"]))
        manifest = Manifest(folder, dict(content["model"]), tables, searched, dict(content["metadata"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{folder / 'bundle.json'} is damaged ({error!r}). Export the model again.") from None
    for name in tables:
        if not all(part.isidentifier() or part.isdigit() for part in name.split(".")):
            raise FormatError(f"{folder}: {name!r} is not a valid table name")
    if not searched <= tables.keys():
        raise FormatError(f"{folder}: bundle.json lists searched tables that the bundle does not have")
    return manifest


def bundle_file_names(folder: Path) -> set[str]:
    """Paths, relative to `folder`, of the files that belong to a bundle; empty if there is no bundle."""
    try:
        content = read_json(folder / "bundle.json")
    except FormatError:
        return set()
    files = content.get("files")
    return {"bundle.json", *files} if content.get("format") == FORMAT and isinstance(files, dict) else set()


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_files(folder: Path, checksums: Mapping[str, str], *, verify: bool) -> None:
    for name, checksum in checksums.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise FormatError(f"{folder}: bundle.json names {name!r}, which is outside the bundle")
        if not path.is_file():
            raise FormatError(f"{path} is missing. Copy the bundle again.")
        if verify and file_sha256(path) != checksum:
            raise FormatError(f"{path} is damaged: its checksum differs from bundle.json. Copy the bundle again.")
