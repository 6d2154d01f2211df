"""`top_k`: the most probable rows of each group. Works without torch."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from thresher.errors import DataError
from thresher.serving.request_rows import read_frames, rows_to_frame

if TYPE_CHECKING:
    from thresher.data.encode.row_encoder import RowEncoder
    from thresher.data.table import EncodedRows

ROW, PROBABILITY, _FIRST = "row", "probability", "first row of the group"


class RowPredictor(Protocol):
    """What `Predictor` and `NumpyPredictor` have in common."""

    @property
    def encoder(self) -> "RowEncoder": ...

    def predict_rows(self, rows: "EncodedRows") -> npt.NDArray[np.float32]: ...


def top_k(
    predictor: "RowPredictor",
    rows: Any,
    k: int,
    *,
    group: str | None = None,
    keep: Sequence[str] = (),
    on_chunk: Callable[["EncodedRows"], None] | None = None,
) -> pl.DataFrame:
    """The `k` most probable rows of each group, best first; ties keep the order of the rows.

    Only one chunk of a file and the best rows so far are held in memory.

    Args:
        rows: any input of `Predictor.predict`, or an iterator of frames with the raw columns.
        group: raw column to group by, for instance the user; by default, all rows form one group.

    Returns:
        Columns `row` (row number from 0), the group column if any, those of `keep`, and `probability`; groups in the
        order of their first row.
    """
    if k < 1:
        raise DataError(f"top_k is {k}; it must be at least 1")
    groups = [] if group is None else [group]
    copied = list(dict.fromkeys([*groups, *keep]))
    for name in copied:
        if name in (ROW, PROBABILITY, _FIRST):
            raise DataError(f"column {name!r} has the name of a column of the result; rename it")
    best, num_rows = pl.DataFrame(), 0
    for frame in _frames(predictor, rows, copied):
        numbers = pl.Series(ROW, range(num_rows, num_rows + len(frame)), dtype=pl.Int64)
        encoded = predictor.encoder.encode_frame(frame)
        if on_chunk is not None:
            on_chunk(encoded)
        probabilities = pl.Series(PROBABILITY, predictor.predict_rows(encoded))
        chunk = pl.DataFrame([*(frame[name] for name in copied), numbers, probabilities, numbers.alias(_FIRST)])
        # in JSON lines, a column may be numbers in one chunk and text in the next
        candidates = pl.concat([best, chunk], how="vertical_relaxed") if len(best.columns) else chunk
        best = _best_rows(candidates, k, groups)
        num_rows += len(frame)
    return best.select([ROW, *copied, PROBABILITY]) if len(best.columns) else best


def _best_rows(candidates: pl.DataFrame, k: int, groups: Sequence[str]) -> pl.DataFrame:
    """The best k rows of each group, with groups ordered by their first row."""
    over = [pl.col(name) for name in groups] or [pl.lit(0)]
    candidates = candidates.with_columns(pl.col(_FIRST).min().over(over))
    ordered = candidates.sort([_FIRST, PROBABILITY, ROW], descending=[False, True, False])
    return ordered.filter(pl.int_range(pl.len()).over(over) < k)


def _frames(predictor: "RowPredictor", rows: Any, also: Sequence[str]) -> Iterable[pl.DataFrame]:
    if isinstance(rows, str | Path):
        return read_frames(rows, predictor.encoder.schema, also=also)
    if isinstance(rows, Iterator):
        return rows
    return [rows_to_frame(rows, predictor.encoder.schema, also=also)]
