"""Ranking: the k most probable rows of each group, from rows in memory or a file of any size.

Only one chunk and the best rows so far are held in memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from thresher.data.encode.row_encoder import EncodedRows
from thresher.errors import DataError
from thresher.serving.predictor import Predictor
from thresher.serving.request_rows import read_frames, rows_to_frame

ROW, PROBABILITY, _FIRST = "row", "probability", "first row of the group"


def top_k(
    predictor: Predictor,
    rows: Any,
    k: int,
    *,
    group: str | None = None,
    keep: Sequence[str] = (),
    on_chunk: Callable[[EncodedRows], None] | None = None,
) -> pl.DataFrame:
    """The `k` most probable rows of each group, best first; ties keep the order of the rows.

    Args:
        predictor: computes the probabilities.
        rows: any input of `Predictor.predict`, or an iterator of frames with the raw columns.
        k: number of rows per group.
        group: raw column to group by, for instance the user; by default, all rows form one group.
        keep: other raw columns to copy into the result, for instance the item.
        on_chunk: called with every chunk of encoded rows.

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
    best = pl.DataFrame()
    num_rows = 0
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


def _frames(predictor: Predictor, rows: Any, also: Sequence[str]) -> Iterable[pl.DataFrame]:
    if isinstance(rows, str | Path):
        return read_frames(rows, predictor.schema, also=also)
    if isinstance(rows, Iterator):
        return rows
    return [rows_to_frame(rows, predictor.schema, also=also)]
