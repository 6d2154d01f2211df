"""EncodedTable: memory-mapped feature ids and labels by split, feature counts and schema, as one folder.

    schema.json  table.json  feature_counts.npy  vocabularies/<k>.parquet
    {train,validation,test}/{ids,labels[,dense][,weights][,bag_<k>_values,bag_<k>_offsets]}.npy

Rows of a split are in the order of the raw files. It is made by `encode`, read by `Batches`; nothing here changes it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thresher.data.batches.split import SPLITS, SplitName
from thresher.data.schema import Pooling, Schema
from thresher.errors import FormatError

TABLE_VERSION = 2


@dataclass(frozen=True, eq=False)
class EncodedSplit:
    """The rows of one split, memory-mapped."""

    name: SplitName
    ids: NDArray[np.int32]  # [rows, F], global feature ids of the single-valued fields
    labels: NDArray[np.uint8] | NDArray[np.float32]  # [rows], 0 or 1; soft ones lie between
    dense: NDArray[np.float32] | None = None  # [rows, K]
    weights: NDArray[np.float32] | None = None  # [rows]
    bags: tuple["BagColumn", ...] = ()  # one per multi-valued field

    @property
    def num_rows(self) -> int:
        return len(self.labels)

    @property
    def positive_share(self) -> float:
        return float(np.mean(self.labels, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class BagColumn:
    """The feature ids of a multi-valued field: row i has `values[offsets[i]:offsets[i + 1]]`."""

    field: int  # its number in `schema.fields`
    pooling: Pooling
    values: NDArray[np.int32]
    offsets: NDArray[np.int64]  # [rows + 1]


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """One encoded data set. Open it with `EncodedTable.open(folder)`."""

    folder: Path
    schema: Schema
    feature_counts: NDArray[np.int64]  # [N], occurrences in the training split
    facts: dict[str, Any]
    """What table.json says: version, fingerprint, inputs, rows by split."""

    @property
    def fingerprint(self) -> str:
        return str(self.facts["fingerprint"])

    @property
    def num_rows(self) -> int:
        return sum(self.facts["rows"].values())

    def split(self, name: SplitName) -> EncodedSplit:
        folder, rows = self.folder / name, self.facts["rows"][name]
        schema = self.schema
        return EncodedSplit(
            name=name,
            ids=_map(folder / "ids.npy", np.int32, (rows, len(schema.single_fields))),
            labels=_map(folder / "labels.npy", np.uint8, (rows,)),
            dense=_map(folder / "dense.npy", np.float32, (rows, schema.num_dense)) if schema.dense else None,
            weights=_map(folder / "weights.npy", np.float32, (rows,)) if schema.weight else None,
            bags=tuple(self._bag(folder, rows, at) for at in range(len(schema.bag_fields))),
        )

    def _bag(self, folder: Path, rows: int, at: int) -> BagColumn:
        field = len(self.schema.single_fields) + at
        pooling = self.schema.fields[field].pooling
        assert pooling is not None
        offsets = _map(folder / f"bag_{at}_offsets.npy", np.int64, (rows + 1,))
        values = _map(folder / f"bag_{at}_values.npy", np.int32, (int(offsets[-1]),))
        return BagColumn(field, pooling, values, offsets)

    @classmethod
    def open(cls, folder: str | Path) -> "EncodedTable":
        folder = Path(folder)
        facts = read_facts(folder)
        if facts is None:
            raise FormatError(f"{folder}: no encoded table here (table.json is missing); encode the data first")
        try:
            schema = Schema.from_json((folder / "schema.json").read_text(encoding="utf-8"))
        except OSError as error:
            raise FormatError(f"{folder}: schema.json is missing; encode the data again") from error
        counts = _map(folder / "feature_counts.npy", np.int64, (schema.num_features,))
        table = cls(folder, schema, np.array(counts), facts)
        for name in SPLITS:
            table.split(name)
        return table


def read_facts(folder: Path) -> dict[str, Any] | None:
    """table.json of a folder, or None when there is none."""
    path = folder / "table.json"
    if not path.exists():
        return None
    try:
        facts = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: damaged ({error}); encode the data again") from error
    if facts.get("version") != TABLE_VERSION:
        raise FormatError(
            f"{path}: version {facts.get('version')}, this release reads {TABLE_VERSION}; encode the data again"
        )
    return facts


def _map(path: Path, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: missing or damaged ({error}); encode the data again") from error
    if array.dtype != dtype or array.shape != shape:
        raise FormatError(
            f"{path}: holds {array.dtype} {array.shape}, expected {np.dtype(dtype)} {shape}; encode the data again"
        )
    return array
