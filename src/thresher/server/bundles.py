"""The bundles that the server holds: loading, and replacing a changed one while requests go on."""

import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from thresher._internal.storage.files import private_folder
from thresher._internal.storage.folder_manifest import read_unchanged
from thresher.data.encode.dict_rows import DictRows, NotPlainError
from thresher.data.schema import Schema
from thresher.data.table import EncodedRows, read_schema
from thresher.data.vocabulary.indexed_vocabulary import IndexedVocabulary
from thresher.errors import FormatError, MissingExtraError, ThresherError
from thresher.server.config import Engine, ServerConfig
from thresher.server.decoding import RowDecoder
from thresher.serving.manifest import Manifest, read_manifest
from thresher.serving.vocabularies import load_vocabularies

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from thresher.data.encode.row_encoder import RowEncoder
    from thresher.serving.ranking import RowPredictor

logger = logging.getLogger("thresher.server")
Version = tuple[int, int, int, int]
MAX_SUGGESTIONS = 50
MAX_READ = 10_000  # values of a field; of larger ones only the most frequent value is shown


@dataclass(frozen=True, eq=False)
class ServedBundle:
    """One loaded bundle. Requests that have begun keep the object they began with."""

    name: str
    manifest: Manifest
    predictor: "RowPredictor"
    vocabularies: Sequence[IndexedVocabulary]
    dict_rows: DictRows
    engine: Engine
    version: Version
    loaded_at: float  # seconds since 1970
    num_bytes: int  # of all files

    @cached_property
    def encoder(self) -> "RowEncoder":
        """The encoder of data frames. It loads polars, and reads no file: a private copy is gone by now."""
        from thresher.data.encode.row_encoder import RowEncoder

        return RowEncoder(self.schema, self.vocabularies)

    def predict_rows(self, rows: EncodedRows) -> "NDArray[np.float32]":
        return self.predictor.predict_rows(rows)

    @cached_property
    def row_decoder(self) -> RowDecoder:
        return RowDecoder(self.schema.input_columns)

    @property
    def schema(self) -> Schema:
        return self.dict_rows.schema

    def encode(self, rows: list[Any]) -> EncodedRows:
        """The ids of rows from JSON; without polars where all their values are plain."""
        if rows and all(isinstance(row, dict) for row in rows):
            try:
                return self.dict_rows.encode(rows)
            except NotPlainError:  # polars reads the rest, or says what is wrong with it
                pass
        from thresher.serving.request_rows import rows_to_frame

        return self.encoder.encode_frame(rows_to_frame(rows, self.schema))

    @property
    def model(self) -> str:
        return str(self.manifest.model.get("name", ""))

    def describe(self) -> dict[str, Any]:
        """The model card: model, sizes and metrics."""
        metadata = {
            name: value for name, value in self.manifest.metadata.items() if isinstance(value, str | int | float)
        }
        return {
            "name": self.name,
            "model": self.model,
            "engine": self.engine,
            "loaded_at": self.loaded_at,
            "tables": {name: list(shape) for name, shape in self.manifest.tables.items()},
            "bytes": self.num_bytes,
            "metadata": metadata,
        }

    @cached_property
    def inputs(self) -> list[dict[str, Any]]:
        """The raw columns of a row with their kind and a few frequent values, for forms and documentation."""
        schema, found = self.schema, dict[str, dict[str, Any]]()
        for field, vocabulary in zip(schema.fields, self.vocabularies, strict=True):
            kind = "text" if field.pooling is None else "list"
            number = field.transform in ("log2", "quantiles")
            entry = found.setdefault(field.column, {"column": field.column, "kind": "number" if number else kind})
            if field.transform == "none" and "values" not in entry:
                entry["values"] = frequent_values(vocabulary)
        for column in schema.dense:
            found.setdefault(column.column, {"column": column.column, "kind": "number"})
        return list(found.values())

    def example_row(self) -> dict[str, Any]:
        """A row with the most frequent value of each column, or a missing one where none is known."""
        values = {entry["column"]: (entry.get("values") or [None])[0] for entry in self.inputs}
        lists = {field.column for field in self.schema.bag_fields}
        return {name: [value] if name in lists and value is not None else value for name, value in values.items()}


def frequent_values(vocabulary: IndexedVocabulary) -> list[str]:
    """The most frequent value first, then the next known ones by id, which follow their counts."""
    if len(vocabulary.index) > MAX_READ:
        return [vocabulary.example] if vocabulary.example else []
    values = sorted((local_id, value) for value, local_id in vocabulary.items() if value)
    first = [vocabulary.example] if vocabulary.example else []
    return list(dict.fromkeys([*first, *(value for _, value in values[:MAX_SUGGESTIONS])]))


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def load_served_bundle(name: str, folder: Path, engine: Engine, *, private: bool = True) -> ServedBundle:
    """Load a bundle and predict once, so that the first request does not pay for what loads late.

    Args:
        private: map a copy of the files. Otherwise, overwriting a file in place changes the answers of a running
            server, or ends it by a bus error.
    """
    return read_unchanged(folder, lambda: _load_private(name, folder, engine, private=private))


def _load_private(name: str, folder: Path, engine: Engine, *, private: bool) -> ServedBundle:
    version = read_version(folder)
    resolved = folder.resolve()  # a link may change while files are read
    if not private:
        return _load(name, resolved, version, engine)
    with private_folder("bundle") as temporary:  # maps outlive the names of their files
        copy = temporary / name
        try:
            shutil.copytree(resolved, copy)
            return _load(name, copy, version, engine)
        except ThresherError as error:
            raise type(error)(str(error).replace(str(copy), str(resolved))) from None
        except (OSError, shutil.Error) as error:
            raise FormatError(f"{resolved} cannot be copied: {error}") from None


def _load(name: str, folder: Path, version: Version, engine: Engine) -> ServedBundle:
    manifest = read_manifest(folder)
    predictor, used = _open_predictor(folder, manifest, engine)
    schema = read_schema(folder)
    vocabularies: Sequence[IndexedVocabulary] | None = getattr(predictor, "vocabularies", None)
    if vocabularies is None:
        vocabularies = load_vocabularies(folder, schema, verify=False)  # read_manifest verified them
    parts = (predictor, vocabularies, DictRows(schema, vocabularies))
    bundle = ServedBundle(name, manifest, *parts, used, version, time.time(), folder_bytes(folder))
    predictor.predict_rows(bundle.encode([bundle.example_row()]))
    return bundle


def _open_predictor(folder: Path, manifest: Manifest, engine: Engine) -> tuple["RowPredictor", Engine]:
    if engine != "torch":
        from thresher.serving.numpy_predictor import NumpyPredictor

        try:
            return NumpyPredictor(manifest), "numpy"
        except FormatError as error:
            if engine == "numpy":
                raise
            logger.info("%s: %s", folder, error)
    try:
        from thresher.serving.predictor import Predictor
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{folder}: this model needs {error.name}, which is not installed. Install torch, or serve a model and "
            "tables that NumpyPredictor supports."
        ) from None
    return Predictor.load(folder, verify=False), "torch"  # read_manifest verified it


def read_version(folder: Path) -> Version:
    """What changes when another bundle takes the place of this one."""
    try:
        found = (folder / "bundle.json").stat()
    except OSError as error:
        raise FormatError(f"{folder}: no bundle.json ({error.strerror}). Name the folder of a bundle.") from None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


class BundleStore:
    """All served bundles by name. A reload replaces one in a single assignment."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.folders = {name: Path(folder) for name, folder in config.bundles.items()}
        self.bundles: Mapping[str, ServedBundle] = {}
        self.failures: dict[str, str] = {}  # why the last reload of a bundle failed
        self._failed_versions: dict[str, Version] = {}

    def load_all(self) -> None:
        self.bundles = {name: self._load(name) for name in self.folders}

    def _load(self, name: str) -> ServedBundle:
        private = self.config.reload_seconds > 0  # a server that never reloads expects files that never change
        return load_served_bundle(name, self.folders[name], self.config.engine, private=private)

    def find(self, name: str | None) -> ServedBundle | None:
        return self.bundles.get(name or self.config.default_bundle)

    def reload_changed(self) -> list[tuple[str, bool]]:
        """Load the bundles that changed; returns their names and whether it worked.

        After a failure the old bundle stays in service. It is tried again when the folder changes again, or at once if
        the bundle was replaced while it was read.
        """
        results = []
        for name, folder in self.folders.items():
            try:
                version = read_version(folder)
            except FormatError as error:
                self.failures[name] = str(error)
                continue  # between removal and replacement, or removed: the loaded one stays in use
            if version in (self.bundles[name].version, self._failed_versions.get(name)):
                continue
            try:
                loaded = self._load(name)
            except (ThresherError, OSError) as error:
                logger.warning("bundle %s was not reloaded, the old one stays in service: %s", name, error)
                self.failures[name] = str(error)
                self._failed_versions[name] = version
                results.append((name, False))
                continue
            self.bundles = {**self.bundles, name: loaded}
            self.failures.pop(name, None)
            self._failed_versions.pop(name, None)
            logger.info("bundle %s was reloaded", name)
            results.append((name, True))
        return results


def count_unknown_values(rows: EncodedRows, schema: Schema) -> int:
    """Values of single-valued fields that have no feature of their own, missing ones included."""
    offsets = np.array(schema.field_offsets[: rows.ids.shape[1]], np.int32)
    return int((rows.ids == offsets).sum())
