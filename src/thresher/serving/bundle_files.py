"""The files of a bundle and whether they are whole: `bundle.json` and the checksums in it. Works without torch."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thresher._internal.files import read_json
from thresher.errors import FormatError

FORMAT = "thresher.bundle"
VERSION = 1


@dataclass(frozen=True)
class BundleFacts:
    """What `bundle.json` says.

    Attributes:
        model: the model's settings, with its name.
        tables: name of each table → its shape `(N, D)`.
        facts: what the exporter wanted kept: budget, AUC, seed.
        searched: names of the tables that budgets and results count; None in bundles that do not say.
    """

    folder: Path
    model: Mapping[str, Any]
    tables: Mapping[str, tuple[int, int]]
    facts: Mapping[str, Any]
    searched: frozenset[str] | None

    def table_path(self, name: str) -> Path:
        return self.folder / "tables" / f"{name}.safetensors"

    @property
    def network_path(self) -> Path:
        return self.folder / "network.safetensors"


def read_bundle_facts(folder: Path, *, verify: bool = True) -> BundleFacts:
    """Read `bundle.json` and check that every file it names is there, and unchanged if `verify`."""
    about = read_json(folder / "bundle.json")
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise FormatError(
            f"{folder} holds {about.get('format')!r} version {about.get('version')!r}; "
            f"this release reads {FORMAT!r} version {VERSION}: upgrade thresher, or export the model again"
        )
    try:
        _check_files(folder, about["files"], verify=verify)
        tables = {name: (int(rows), int(columns)) for name, (rows, columns) in about["tables"].items()}
        searched = None if about.get("searched") is None else frozenset(map(str, about["searched"]))
        facts = BundleFacts(folder, dict(about["model"]), tables, dict(about["facts"]), searched)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"{folder / 'bundle.json'} is damaged ({error!r}); export the model again") from None
    for name in tables:
        if not all(part.isidentifier() or part.isdigit() for part in name.split(".")):
            raise FormatError(f"{folder}: {name!r} cannot be the name of a table")
    if searched is not None and not searched <= tables.keys():
        raise FormatError(f"{folder}: bundle.json says that tables were searched which it does not have")
    return facts


def bundle_file_names(folder: Path) -> set[str]:
    """The files that a bundle names as its own, there or not, by their place in its folder; none if it is no bundle."""
    try:
        about = read_json(folder / "bundle.json")
    except FormatError:
        return set()
    files = about.get("files")
    return {"bundle.json", *files} if about.get("format") == FORMAT and isinstance(files, dict) else set()


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_files(folder: Path, checksums: Mapping[str, str], *, verify: bool) -> None:
    for name, checksum in checksums.items():
        path = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise FormatError(f"{folder}: bundle.json names {name!r}, which is outside the bundle")
        if not path.is_file():
            raise FormatError(f"{path} is missing; copy the bundle again")
        if verify and sha256(path) != checksum:
            raise FormatError(f"{path} is damaged: its checksum is not the one in bundle.json; copy the bundle again")
