"""Predictor: raw rows in, probabilities out, from a bundle and nothing else."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from thresher.data.schema import Schema
from thresher.export.bundle import Bundle, open_bundle
from thresher.export.raw_rows import Row, Rows, read_frames, rows_to_frame

Probabilities = npt.NDArray[np.float32]
BATCH_ROWS = 8192  # bounds the vectors held at once, whatever the number of rows


class Predictor:
    """A trained model with its encoder: give it raw rows, as they were before encoding.

    Values training never saw are fine: they get their field's unknown feature. Safe under any number of threads.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.model, self.encoder = bundle.model, bundle.encoder

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
        """Probabilities of raw rows, in their order.

        Args:
            rows: one dict (gives one number), a list of dicts, a polars or pandas frame, or the path of a CSV, TSV,
                Parquet or JSON lines file.
        """
        if isinstance(rows, str | Path):
            parts = list(self.predict_file(rows))
            return np.concatenate(parts) if parts else np.zeros(0, np.float32)
        probabilities = self.predict_frame(rows_to_frame(rows, self.schema))
        return float(probabilities[0]) if isinstance(rows, dict) else probabilities

    def predict_file(self, path: str | Path) -> Iterator[Probabilities]:
        """Probabilities of a file's rows, chunk by chunk: the file may be larger than memory."""
        for frame in read_frames(path, self.schema):
            yield self.predict_frame(frame)

    def predict_frame(self, frame: pl.DataFrame) -> Probabilities:
        rows = self.encoder.encode_frame(frame)
        return self.predict_ids(rows.ids, rows.dense)

    @torch.inference_mode()
    def predict_ids(self, ids: npt.NDArray[np.int32], dense: npt.NDArray[np.float32] | None = None) -> Probabilities:
        """Probabilities of encoded rows: global ids `[n, F]` and dense inputs `[n, K]`."""
        probabilities = np.empty(len(ids), np.float32)
        for first in range(0, len(ids), BATCH_ROWS):
            part = slice(first, first + BATCH_ROWS)
            inputs = [torch.from_numpy(ids[part])]
            if dense is not None:
                inputs.append(torch.from_numpy(dense[part]))
            probabilities[part] = torch.sigmoid(self.model(*inputs)).numpy()
        return probabilities


def load_bundle(path: str | Path, *, verify: bool = True) -> Predictor:
    """Open a bundle folder, ready to predict."""
    return Predictor.load(path, verify=verify)
