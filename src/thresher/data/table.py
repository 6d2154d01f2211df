"""EncodedTable: a folder with feature ids and labels by split (memory-mapped), feature counts and schema.

    manifest.json  schema.json  table.json  feature_counts.npy  vocabularies/<k>.parquet
    {train,validation,test}/{ids,labels[,dense][,weights][,bag_<k>_values,bag_<k>_offsets]}.npy

`encode` writes it, `Batches` reads it. The rows of a split are in the order of the raw files. Checksums and values of a
split are checked when it is first read.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thresher._internal.storage.documents import check_regular, damaged_file, read_bytes
from thresher._internal.storage.files import is_temporary_path, read_json
from thresher._internal.storage.folder_manifest import SMALL_BYTES, FolderManifest, open_manifest
from thresher._internal.text import list_first
from thresher.data.schema import SPLITS, Pooling, Schema, SplitName
from thresher.errors import DataError, FormatError

TABLE_VERSION = 3
_WITHOUT_MANIFEST = 2
CONTENT_VERSION = 2  # of ids and vocabularies: tables with another one are encoded again
SCRATCH = "scratch"  # subfolder of the temporary files of `encode`
_SPLIT = r"(train|validation|test)/"
_TABLE_FILES = re.compile(
    r"(table|schema|manifest)\.json|feature_counts\.npy|vocabularies/\d+\.parquet"
    rf"|{_SPLIT}(ids|labels|dense|weights|bag_\d+_(offsets|values))\.npy"
    rf"|{SCRATCH}/(values/\d+\.parquet|{_SPLIT}\w+\.part)"
)
ARTEFACT = "encoded table"
REMEDY = "Encode the data again."
CHUNK_ROWS = 1 << 18


@dataclass(frozen=True, eq=False)
class Bag:
    """A multi-valued field: row i has the features `values[offsets[i]:offsets[i + 1]]`. In a batch they are tensors."""

    field: int  # index in `schema.fields`
    values: Any  # int32 [total], global feature ids
    offsets: Any  # int64 [rows + 1]
    pooling: Pooling

    def to(self, device: Any) -> "Bag":
        """The bag of a batch on another device."""
        return replace(self, values=self.values.to(device), offsets=self.offsets.to(device))


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """The ids and dense numbers of some rows."""

    ids: NDArray[np.int32]  # [n, F], global feature ids of the single-valued fields
    dense: NDArray[np.float32] | None = None  # [n, K]
    bags: tuple[Bag, ...] = ()  # one per multi-valued field


@dataclass(frozen=True, eq=False)
class EncodedSplit:
    """The rows of one split, memory-mapped."""

    name: SplitName
    ids: NDArray[np.int32]  # [rows, F], global feature ids of the single-valued fields
    labels: NDArray[np.uint8] | NDArray[np.float32]  # [rows], 0 or 1; soft labels between 0 and 1
    dense: NDArray[np.float32] | None = None  # [rows, K]
    weights: NDArray[np.float32] | None = None  # [rows]
    bags: tuple[Bag, ...] = ()  # one per multi-valued field

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    @property
    def positive_share(self) -> float:
        return float(np.mean(self.labels, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """An encoded data set; open it with `EncodedTable.open(folder)`."""

    folder: Path
    schema: Schema
    feature_counts: NDArray[np.int64]  # [N], occurrences in the training split
    metadata: dict[str, Any]  # the content of table.json: version, fingerprint, inputs, rows by split
    manifest: FolderManifest | None = None  # None in tables of earlier releases
    _checked: set[str] = field(default_factory=set, repr=False)  # splits

    @property
    def fingerprint(self) -> str:
        return str(self.metadata["fingerprint"])

    @property
    def num_rows(self) -> int:
        return sum(self.metadata["rows"].values())

    @property
    def encoder_bytes(self) -> int:
        """Bytes of schema and vocabularies, which every bundle of a model contains."""
        files = [self.folder / "schema.json", *(self.folder / "vocabularies").glob("*")]
        return sum(file.stat().st_size for file in files)

    def split(self, name: SplitName) -> EncodedSplit:
        """The rows of one split. The first call reads them all, to compare checksums and check every value."""
        split = self._map_split(name)
        if name not in self._checked:
            if self.manifest is not None:
                verify_split(self.manifest, name)
            check_values(split, self.schema, self.folder)
            self._checked.add(name)
        return split

    def _map_split(self, name: SplitName) -> EncodedSplit:
        folder, rows = self.folder / name, self.metadata["rows"][name]
        schema = self.schema
        return EncodedSplit(
            name=name,
            ids=_memory_map(folder / "ids.npy", np.int32, (rows, len(schema.single_fields))),
            labels=_memory_map(folder / "labels.npy", np.uint8, (rows,)),
            dense=_memory_map(folder / "dense.npy", np.float32, (rows, schema.num_dense)) if schema.dense else None,
            weights=_memory_map(folder / "weights.npy", np.float32, (rows,)) if schema.weight else None,
            bags=tuple(self._bag(folder, rows, at) for at in range(len(schema.bag_fields))),
        )

    def _bag(self, folder: Path, rows: int, at: int) -> Bag:
        offsets = _memory_map(folder / f"bag_{at}_offsets.npy", np.int64, (rows + 1,))
        values = _memory_map(folder / f"bag_{at}_values.npy", np.int32, (int(offsets[-1]),))
        pooling = self.schema.bag_fields[at].pooling
        assert pooling is not None
        return Bag(len(self.schema.single_fields) + at, values, offsets, pooling)

    @classmethod
    def open(cls, folder: str | Path, *, verify: bool = False) -> "EncodedTable":
        """Open a table. `verify` compares all checksums now; by default, those of a split when it is first read."""
        folder = Path(folder)
        metadata = read_metadata(folder)
        if metadata is None:
            raise FormatError(f"{folder}: not an encoded table (table.json is missing); encode the data first")
        manifest = table_manifest(folder, required=metadata["version"] != _WITHOUT_MANIFEST, verify=verify)
        schema = read_schema(folder)
        counts = _memory_map(folder / "feature_counts.npy", np.int64, (schema.num_features,))
        if len(counts) and counts.min() < 0:
            raise FormatError(f"{folder / 'feature_counts.npy'} has negative counts; encode the data again")
        table = cls(folder, schema, np.array(counts), metadata, manifest)
        for name in SPLITS:
            table._map_split(name)
        return table


def read_schema(folder: Path) -> Schema:
    """The schema of an encoded table or a bundle."""
    path = folder / "schema.json"
    return Schema.from_json(read_bytes(path), path)


def read_metadata(folder: Path) -> dict[str, Any] | None:
    """The content of table.json; None if the folder has none."""
    path = folder / "table.json"
    if not path.exists():
        return None
    metadata = read_json(path)
    if (version := metadata.get("version")) not in (_WITHOUT_MANIFEST, TABLE_VERSION):
        raise FormatError(f"{path}: version {str(version)[:20]}, expected {TABLE_VERSION}; encode the data again")
    rows = metadata.get("rows")
    is_complete = isinstance(rows, dict) and all(type(rows.get(name)) is int and rows[name] >= 0 for name in SPLITS)
    if not is_complete or not isinstance(metadata.get("inputs"), dict) or "fingerprint" not in metadata:
        raise FormatError(f"{path}: damaged (rows, inputs or fingerprint are missing); encode the data again")
    return metadata


def _memory_map(path: Path, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    check_regular(path)
    with damaged_file(str(path), "Encode the data again."):
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype != dtype or array.shape != shape:
        problem = f"contains {array.dtype} {array.shape}, expected {np.dtype(dtype)} {shape}"
        raise FormatError(f"{path}: {problem}; encode the data again")
    return array


def other_files(folder: Path) -> list[str]:
    """The files of a folder that `encode` did not write, as paths relative to the folder."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(
        path.as_posix()
        for path in found
        if _TABLE_FILES.fullmatch(path.as_posix()) is None
        and not any(is_temporary_path(Path(part)) for part in path.parts)
    )


def check_replaceable(folder: Path) -> None:
    """Raise if the folder contains files that are not part of an encoded table."""
    if folder.is_dir() and (others := other_files(folder)):
        problem = f"contains files that are not part of an encoded table: {list_first(others)}"
        raise DataError(f"{problem}. The folder would be replaced: move them, or choose another folder", file=folder)


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
