"""`bundle.json`: model settings, table shapes and metadata of a bundle; and the check of its files. Without torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from thresher._internal.storage.documents import check_name, damaged_file
from thresher._internal.storage.files import read_json
from thresher._internal.storage.folder_manifest import MANIFEST, FolderManifest, check_path, open_manifest, stored_file
from thresher.data.schema import Schema
from thresher.data.table import read_schema
from thresher.errors import FormatError

T = TypeVar("T")
FORMAT = "thresher.bundle"
VERSION = 2
ARTEFACT = "bundle"
REMEDY = "Copy or export the bundle again."


@dataclass(frozen=True)
class Manifest:
    """The content of `bundle.json`: model settings, shapes `(N, D)` of tables, tables that budgets count, metadata."""

    folder: Path
    model: Mapping[str, Any]
    tables: Mapping[str, tuple[int, int]]
    searched: frozenset[str]
    metadata: Mapping[str, Any]
    verified: bool = False  # its checksums were compared, so values may be read, too

    @property
    def network_path(self) -> Path:
        return self.folder / "network.safetensors"

    def read_schema(self) -> Schema:
        """The schema; each of its features must have a row in every table."""
        schema = read_schema(self.folder)
        for name, (rows, _) in self.tables.items():
            if rows != schema.num_features:
                raise FormatError(
                    f"{self.folder}: table {name!r} has {rows:,} rows, but the schema has {schema.num_features:,} "
                    f"features. {REMEDY}"
                )
        return schema

    def load_tables(self, load: Callable[..., T]) -> dict[str, T]:
        """Load all tables with `load(path, verify=False)`; check their shapes and, if `verified`, their values."""
        tables = {}
        for name, shape in self.tables.items():
            path = self.folder / "tables" / f"{name}.safetensors"
            table: Any = load(path, verify=False)  # read_manifest verified it
            if self.verified:
                table.check_finite(path)
            if table.shape != shape:
                raise FormatError(
                    f"{self.folder}: table {name!r} has shape {table.shape}, but bundle.json records {shape}. Export "
                    "the model again"
                )
            tables[name] = table
        return tables


def read_manifest(folder: Path, *, verify: bool = True) -> Manifest:
    """Read `bundle.json` and check that all its files exist; with `verify`, also compare their checksums."""
    if not (folder / "bundle.json").exists():
        _explain_missing(folder)
    content = read_json(folder / "bundle.json")
    found, version = content.get("format"), content.get("version")
    if found != FORMAT or version not in (1, VERSION):
        raise FormatError(
            f"{folder} has format {str(found)[:80]!r} version {str(version)[:20]}, expected {FORMAT!r} version "
            f"{VERSION}. Upgrade thresher, or export the model again."
        )
    files = _files(folder, content)
    files.check_sizes()
    if verify:
        files.verify()
    with damaged_file(str(folder / "bundle.json"), REMEDY):
        tables = {_table_name(name): _shape(shape) for name, shape in content["tables"].items()}
        searched = frozenset(map(str, content["searched"]))
        manifest = Manifest(folder, dict(content["model"]), tables, searched, dict(content["metadata"]), verify)
    needed = {"bundle.json", "schema.json", "network.safetensors", *(f"tables/{name}.safetensors" for name in tables)}
    if missing := sorted(needed - files.files.keys() - ({"bundle.json"} if version == 1 else set())):
        raise FormatError(f"{folder} is incomplete: {missing[0]} is not listed among its files. {REMEDY}")
    if not searched <= tables.keys():
        raise FormatError(f"{folder}: bundle.json lists searched tables that the bundle does not have")
    return manifest


def _explain_missing(folder: Path) -> None:
    """Raise with the bundles that are near: a run or the folder of its bundles was named, or another size."""
    if (folder / "config.toml").exists():
        raise FormatError(f"{folder} is a run. Use one of its bundles: {_bundles(folder / 'bundles')}")
    if not folder.exists() and folder.parent.is_dir():
        raise FormatError(f"{folder}: no such bundle. Found beside it: {_bundles(folder.parent)}")


def _bundles(folder: Path) -> str:
    return ", ".join(str(found.parent) for found in sorted(folder.glob("*/bundle.json"))) or "none yet"


def bundle_file_names(folder: Path) -> set[str]:
    """Paths, relative to `folder`, of the files that belong to a bundle; empty if there is no bundle."""
    try:
        content = read_json(folder / "bundle.json")
        return {"bundle.json", MANIFEST, *_files(folder, content).files} if content.get("format") == FORMAT else set()
    except FormatError:
        return set()


def _files(folder: Path, content: Mapping[str, Any]) -> FolderManifest:
    """The files of a bundle with their checksums, which bundles of version 1 record in `bundle.json`."""
    manifest = open_manifest(folder, ARTEFACT, required=content.get("version") != 1, remedy=REMEDY)
    if manifest is not None:
        return manifest
    path, files = folder / "bundle.json", content.get("files")
    if not isinstance(files, dict):
        raise FormatError(f"{path} is damaged (no list of files). {REMEDY}")
    stored = {check_path(name, path): stored_file(entry, path) for name, entry in files.items()}
    return FolderManifest(folder, ARTEFACT, stored, REMEDY)


def _table_name(name: str) -> str:
    check_name(name, "bundle.json")
    if not all(part.isidentifier() or part.isdigit() for part in name.split(".")):
        raise ValueError(f"{name!r} is not a valid table name")
    return name


def _shape(shape: Any) -> tuple[int, int]:
    rows, columns = shape
    if not all(type(length) is int and 0 <= length < 2**40 for length in (rows, columns)):
        raise ValueError(f"a table of shape {str(shape)[:80]}")
    return rows, columns
