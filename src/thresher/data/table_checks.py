"""Checks of an encoded table's files: sizes when it is opened; checksums and values when a split is first read."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from thresher._internal.storage.folder_manifest import SMALL_BYTES, FolderManifest, open_manifest
from thresher.data.schema import Schema
from thresher.errors import FormatError

if TYPE_CHECKING:
    from thresher.data.table import EncodedSplit

ARTEFACT = "encoded table"
REMEDY = "Encode the data again."
CHUNK_ROWS = 1 << 18


def table_manifest(folder: Path, *, required: bool, verify: bool) -> FolderManifest | None:
    """The manifest of a table, with sizes and small files checked, or all files with `verify`; None in old tables."""
    manifest = open_manifest(folder, ARTEFACT, required=required, remedy=REMEDY)
    if manifest is not None:
        manifest.check_sizes()
        manifest.verify(up_to_bytes=None if verify else SMALL_BYTES)
    return manifest


def verify_files(folder: Path, names: Iterable[str]) -> None:
    """Compare the checksums of files of a table; tables of earlier releases, and tables in the making, have none."""
    manifest = open_manifest(folder, ARTEFACT, required=False, remedy=REMEDY)
    if manifest is not None:
        for name in names:
            manifest.verify_file(name)


def verify_split(manifest: FolderManifest, name: str) -> None:
    """Compare the checksums of one split's files; each is read once per process."""
    for file in manifest.files:
        if file.startswith(f"{name}/"):
            manifest.verify_file(file)


def check_values(split: "EncodedSplit", schema: Schema, folder: Path) -> None:
    """Raise unless ids lie in the ranges of their fields, labels are 0…1, and numbers are finite."""
    place = folder / split.name
    lows = np.array(schema.field_offsets, np.int64)
    highs = lows + np.array(schema.field_sizes, np.int64)
    single = slice(0, split.ids.shape[1])
    for ids in _chunks(split.ids):
        if (ids < lows[single]).any() or (ids >= highs[single]).any():
            raise FormatError(f"{place / 'ids.npy'} has ids outside the range of their field. {REMEDY}")
    for labels in _chunks(split.labels):
        if not ((labels >= 0) & (labels <= 1)).all():
            raise FormatError(f"{place / 'labels.npy'} has labels that are not between 0 and 1. {REMEDY}")
    for name, numbers in (("dense", split.dense), ("weights", split.weights)):
        if numbers is not None and not all(np.isfinite(chunk).all() for chunk in _chunks(numbers)):
            raise FormatError(f"{place / name}.npy has numbers that are NaN or infinite. {REMEDY}")
    for at, bag in enumerate(split.bags):
        offsets = bag.offsets
        if offsets[0] != 0 or not all((np.diff(chunk) >= 0).all() for chunk in _chunks(offsets, overlap=1)):
            raise FormatError(f"{place / f'bag_{at}_offsets.npy'} does not ascend from 0. {REMEDY}")
        if not all(((ids >= lows[bag.field]) & (ids < highs[bag.field])).all() for ids in _chunks(bag.values)):
            raise FormatError(f"{place / f'bag_{at}_values.npy'} has ids outside the range of its field. {REMEDY}")


def _chunks(array: NDArray[Any], overlap: int = 0) -> Iterator[NDArray[Any]]:
    for first in range(0, len(array), CHUNK_ROWS):
        yield array[first : first + CHUNK_ROWS + overlap]
