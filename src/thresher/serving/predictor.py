"""Predictor: raw rows → probabilities, from a bundle."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from thresher._internal.forked import polars_is_lost, prepare_torch
from thresher.data.encode.row_encoder import count_unknown
from thresher.data.read.column_values import as_text
from thresher.data.read.data_frames import DataFrame, to_polars
from thresher.data.schema import Schema
from thresher.data.table import Bag, EncodedRows
from thresher.errors import warn_user
from thresher.models.model_registry import model_name
from thresher.serving.bundle import Bundle, open_bundle
from thresher.serving.few_rows import FEW_ROWS, dict_rows, encode_few
from thresher.serving.request_rows import Row, Rows, read_frames, rows_to_frame

Probabilities = npt.NDArray[np.float32]
BATCH_ROWS = 8192  # bounds the memory for vectors
MIN_WARNING_ROWS = 100  # in fewer rows, a field may have only unknown values by chance


class Predictor:
    """A trained model with its encoder: predictions for raw rows equal the trained model's.

    Values that were not seen in training map to the unknown feature of their field. If a column contains only unknown
    values (100 rows or more, not counting missing values), a warning is issued once. A predictor can be shared by
    threads.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.model, self.encoder = bundle.model, bundle.encoder
        self._dict_rows = dict_rows(bundle.encoder)
        self._warned = False

    def __repr__(self) -> str:
        about = f"model={model_name(self.bundle.model_config)!r}, fields={len(self.schema.fields)}"
        sizes = f"num_parameters={self.bundle.num_parameters:,}, storage_bytes={self.bundle.storage_bytes:,}"
        return f"{type(self).__name__}({str(self.bundle.folder)!r}, {about}, {sizes})"

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """Open a bundle. `verify=False` skips the checksums."""
        return cls(open_bundle(folder, verify=verify))

    @property
    def schema(self) -> Schema:
        return self.encoder.schema

    @overload
    def predict(self, rows: Row) -> float: ...
    @overload
    def predict(self, rows: Sequence[Row] | pl.DataFrame | str | Path) -> Probabilities: ...
    @overload
    def predict(self, rows: Any) -> Probabilities: ...
    def predict(self, rows: Rows | str | Path) -> Probabilities | float:
        """Probabilities of raw rows, in their order; one dict gives one number.

        Rows: a dict, a list of dicts, a polars or pandas frame, or the path of a CSV, TSV, Parquet or JSON lines file.
        """
        if isinstance(rows, str | Path):
            parts = list(self.predict_file(rows))
            return np.concatenate(parts) if parts else np.zeros(0, np.float32)
        few = [rows] if isinstance(rows, Mapping) else rows
        limit = None if polars_is_lost() else FEW_ROWS
        encoded = encode_few(self._dict_rows, few, limit) if isinstance(few, list | tuple) else None
        if encoded is not None:
            probabilities = self.predict_rows(encoded)
        else:
            probabilities = self.predict_frame(rows_to_frame(rows, self.schema))
        return float(probabilities[0]) if isinstance(rows, Mapping) else probabilities

    def predict_file(self, path: str | Path) -> Iterator[Probabilities]:
        """Probabilities of the rows of a file, chunk by chunk. The file may be larger than memory."""
        for frame in read_frames(path, self.schema):
            yield self.predict_frame(frame)

    def predict_frame(self, frame: DataFrame) -> Probabilities:
        if not isinstance(frame, pl.DataFrame):
            frame = to_polars(frame, self.schema.input_columns, self.schema)
        rows = self.encoder.encode_frame(frame)
        if not self._warned and len(frame) >= MIN_WARNING_ROWS:
            self._warn_if_unknown(frame, rows)
        return self.predict_rows(rows)

    @torch.inference_mode()
    def predict_rows(self, rows: EncodedRows) -> Probabilities:
        prepare_torch()
        probabilities = np.empty(len(rows.ids), np.float32)
        for first in range(0, len(rows.ids), BATCH_ROWS):
            part = slice(first, min(first + BATCH_ROWS, len(rows.ids)))
            probabilities[part] = torch.sigmoid(self.model(*self._inputs(rows, part))).numpy()
        return probabilities

    def predict_ids(self, ids: npt.NDArray[np.int32], dense: npt.NDArray[np.float32] | None = None) -> Probabilities:
        """Probabilities of encoded rows without multi-valued fields: global ids `[n, F]`, dense inputs `[n, K]`."""
        return self.predict_rows(EncodedRows(ids, dense))

    def _warn_if_unknown(self, frame: pl.DataFrame, rows: EncodedRows) -> None:
        """Warn once if all values of a field are unknown: they may be written in another way than in training."""
        counts = count_unknown(rows.ids, self.schema)
        for field, count, vocabulary in zip(self.schema.single_fields, counts, self.encoder.vocabularies, strict=False):
            # a value without a key may be a dropped feature
            if count < MIN_WARNING_ROWS or vocabulary.size == 1 or not vocabulary.complete or self._warned:
                continue
            texts = as_text(frame[field.column])
            filled = texts.filter(texts != "")
            # missing values are a known feature if they were frequent enough in training
            num_known = len(frame) - count - (len(frame) - len(filled) if vocabulary.has_missing else 0)
            if num_known or len(filled) < MIN_WARNING_ROWS:
                continue
            self._warned = True
            example = "" if field.transform != "none" else f", but training had values such as {vocabulary.example!r}"
            warn_user(
                f"all {len(filled):,} values of column {field.column!r} are unknown to the model, for example "
                f"{filled[0]!r}{example}. Write them as in the training data."
            )

    def _inputs(self, rows: EncodedRows, part: slice) -> tuple[Any, ...]:
        """Arguments of the model: `(ids,)`, `(ids, dense)` or `(ids, dense or None, bags)`."""
        ids = _tensor(rows.ids[part])
        dense = None if rows.dense is None else _tensor(rows.dense[part])
        if not rows.bags:
            return (ids,) if dense is None else (ids, dense)
        bags = []
        for bag in rows.bags:
            offsets = bag.offsets[part.start : part.stop + 1]
            values = _tensor(bag.values[offsets[0] : offsets[-1]])
            bags.append(Bag(bag.field, values, _tensor(offsets - offsets[0]), bag.pooling))
        return ids, dense, tuple(bags)


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """The array as a tensor; a read-only array is copied, because torch warns about it."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def load_bundle(path: str | Path, *, verify: bool = True) -> Predictor:
    """Open a bundle folder for predictions."""
    return Predictor.load(path, verify=verify)
