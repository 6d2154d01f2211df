"""Ranking with a predictor: the k most probable rows of each group, from rows in memory or a file of any size.

What is held at once is one chunk and the best rows so far, never the whole file.
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
    watch: Callable[[EncodedRows], None] | None = None,
) -> pl.DataFrame:
    """The `k` most probable rows of each group, best first; equal ones in their order.

    Args:
        predictor: gives the probabilities.
        rows: as `Predictor.predict` takes them, or an iterator of frames with the raw columns.
        k: how many rows of each group.
        group: the raw column whose equal values make a group, for instance the user; without it all rows are one.
        keep: other raw columns to copy into the answer, for instance the item.
        watch: is shown every chunk of rows, encoded.

    Returns:
        Columns `row` (number of the row, from 0), the group column if any, those of `keep`, and `probability`; groups
        in the order in which they first appear.
    """
    if k < 1:
        raise DataError(f"top_k is {k}; it must be at least 1")
    groups = [] if group is None else [group]
    copied = list(dict.fromkeys([*groups, *keep]))
    for name in copied:
        if name in (ROW, PROBABILITY, _FIRST):
            what = "the group column" if name == group else "a column to keep"
            raise DataError(f"{what} is called {name!r}, like a column of the answer; rename it")
    best = pl.DataFrame()
    seen = 0
    for frame in _frames(predictor, rows, copied):
        rows_so_far = pl.Series(ROW, range(seen, seen + len(frame)), dtype=pl.Int64)
        encoded = predictor.encoder.encode_frame(frame)
        if watch is not None:
            watch(encoded)
        probabilities = pl.Series(PROBABILITY, predictor.predict_rows(encoded))
        own = [frame[name] for name in copied]
        chunk = pl.DataFrame([*own, rows_so_far, probabilities, rows_so_far.alias(_FIRST)])
        # a chunk of JSON lines may hold numbers where the next holds text
        candidates = pl.concat([best, chunk], how="vertical_relaxed") if len(best.columns) else chunk
        best = _best(candidates, k, groups)
        seen += len(frame)
    return best.select([ROW, *copied, PROBABILITY]) if len(best.columns) else best


def _best(candidates: pl.DataFrame, k: int, groups: Sequence[str]) -> pl.DataFrame:
    """The best k of each group, groups ordered by their first row, which each kept row remembers."""
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
