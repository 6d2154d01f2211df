"""The manifest of a folder: the size and SHA-256 of every file, checked in the same way by all readers.

    manifest.json   {"format": "thresher.manifest", "version": 1, "artefact": …, "files": {path: {bytes, sha256}}, …}

A writer calls `write_manifest` as its last step. A reader calls `open_manifest`, which checks names and sizes, then
`FolderManifest.verify`. Large arrays can be verified later, when they are first read (`FolderManifest.verify_file`).
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from thresher._internal.storage.documents import check_name, check_regular, parse_json, read_bytes, unseal
from thresher._internal.storage.files import is_temporary_path, write_json
from thresher.errors import FormatError, ThresherError

T = TypeVar("T")
MANIFEST = "manifest.json"
FORMAT = "thresher.manifest"
VERSION = 1
SMALL_BYTES = 1 << 20
"""Files up to this size are verified when a folder is opened; larger arrays when they are first read."""
MAX_FILES = 100_000
_ATTEMPTS = 20  # to read a folder that is being replaced


@dataclass(frozen=True)
class StoredFile:
    """What the manifest records of a file. The size is None in bundles of earlier releases."""

    num_bytes: int | None
    sha256: str


@dataclass(frozen=True)
class FolderManifest:
    """The files of a folder. `remedy` ends every error message: what the user can do about a damaged file."""

    folder: Path
    artefact: str
    files: Mapping[str, StoredFile]
    remedy: str
    _verified: dict[str, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)

    def check_sizes(self) -> None:
        """Raise unless every file exists, is a regular file, and has its size."""
        for name, stored in self.files.items():
            path = self.folder / name
            try:
                check_regular(path)
            except FormatError as error:
                raise FormatError(f"{error} {self.remedy}") from None
            size = path.stat().st_size
            if stored.num_bytes is not None and size != stored.num_bytes:
                raise FormatError(f"{path} is damaged: {size:,} bytes, expected {stored.num_bytes:,}. {self.remedy}")

    def verify(self, *, up_to_bytes: int | None = None) -> None:
        """Compare the checksums of all files, or of those up to a size."""
        for name in self.files:
            if up_to_bytes is None or (self.folder / name).stat().st_size <= up_to_bytes:
                self.verify_file(name)

    def verify_file(self, name: str) -> None:
        """Compare the checksum of one file, once until the file changes."""
        path = self.folder / name
        if name not in self.files:
            raise FormatError(f"{path} is not listed in {MANIFEST}. {self.remedy}")
        check_regular(path)
        identity = _identity(path)
        if identity is not None and self._verified.get(name) == identity:
            return
        if file_sha256(path) != self.files[name].sha256:
            raise FormatError(f"{path} is damaged: its checksum differs from {MANIFEST}. {self.remedy}")
        if identity is not None:
            self._verified[name] = identity

    def other_files(self) -> list[str]:
        """Files in the folder that the manifest does not list, in the order of their names."""
        return [name for name in _file_names(self.folder) if name not in self.files]


def write_manifest(folder: Path, artefact: str) -> None:
    """Record every file of a finished folder."""
    names = list(_file_names(folder))
    files = {name: {"bytes": (folder / name).stat().st_size, "sha256": file_sha256(folder / name)} for name in names}
    content = {"format": FORMAT, "version": VERSION, "artefact": artefact, "files": files}
    write_json(folder / MANIFEST, content)


def open_manifest(folder: Path, artefact: str | None = None, *, required: bool, remedy: str) -> FolderManifest | None:
    """The manifest of a folder, with names checked; None if it has none and none is `required`."""
    path = folder / MANIFEST
    if not required and not os.path.lexists(path):
        return None
    content = unseal(parse_json(read_bytes(path), path), path, required=True)
    found = content.get("format"), content.get("version")
    if found != (FORMAT, VERSION):
        raise FormatError(
            f"{path} has format {found[0]!r} version {found[1]!r}, expected {FORMAT!r} version {VERSION}."
        )
    if artefact is not None and content.get("artefact") != artefact:
        raise FormatError(f"{folder} holds {content.get('artefact')!r}, expected {artefact!r}. Choose another folder.")
    files = content.get("files")
    if not isinstance(files, dict) or not isinstance(content.get("artefact"), str):
        raise FormatError(f"{path} is damaged (no list of files). {remedy}")
    return FolderManifest(folder, content["artefact"], _stored_files(files, path), remedy)


def stored_file(entry: Any, path: Path) -> StoredFile:
    """An entry of a manifest; in bundles of earlier releases it is the checksum alone."""
    size, digest = (entry.get("bytes"), entry.get("sha256")) if isinstance(entry, dict) else (None, entry)
    if not isinstance(digest, str) or len(digest) != 64 or not (size is None or (type(size) is int and size >= 0)):
        raise FormatError(f"{path} is damaged (an entry without size and checksum). Copy or create it again.")
    return StoredFile(size, digest)


def check_path(name: object, path: Path) -> str:
    """A path relative to a folder, read from one of its files: it must stay inside the folder."""
    if not isinstance(name, str) or len(name) > 4000:
        raise FormatError(f"{path} is damaged: {str(name)[:40]!r} is not a file name. Copy or create it again.")
    parts = PurePosixPath(name).parts
    if name.startswith(("/", "\\")) or ".." in parts or "\\" in name or ":" in name or not parts:
        raise FormatError(f"{path} names {name[:80]!r}, which is outside the folder. Copy or create it again.")
    for part in parts:
        check_name(part, path)
    return name


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_unchanged(folder: Path, read: Callable[[], T]) -> T:
    """The result of `read`, all of it from one state of the folder: repeated if the folder is replaced meanwhile."""
    for _ in range(_ATTEMPTS):
        before = _identity(folder)
        try:
            result = read()
        except ThresherError:
            if before is not None and _identity(folder) == before:
                raise
        else:
            if _identity(folder) == before:
                return result
        if before is None:
            time.sleep(0.002)  # where two folders cannot be exchanged, the path is absent for a moment
    return read()


def _identity(path: Path) -> tuple[int, ...] | None:
    """Changes when the path is another file or folder, or its content was written."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _stored_files(files: Mapping[str, Any], path: Path) -> dict[str, StoredFile]:
    if len(files) > MAX_FILES:
        raise FormatError(f"{path} lists more than {MAX_FILES:,} files. Copy or create it again.")
    return {check_path(name, path): stored_file(entry, path) for name, entry in files.items()}


def _file_names(folder: Path) -> Iterator[str]:
    """Relative paths of all files but the manifest and temporary ones, sorted."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and name.as_posix() != MANIFEST and not any(is_temporary_path(Path(p)) for p in name.parts):
            yield name.as_posix()
