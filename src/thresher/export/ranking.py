"""Ranking with a predictor: the k most probable rows of each group, from rows in memory or a file of any size.

What is held at once is one chunk and the best rows so far, never the whole file.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from thresher.errors import DataError
from thresher.export.predictor import Predictor
from thresher.export.raw_rows import read_frames, rows_to_frame

ROW, PROBABILITY, _FIRST = "row", "probability", "first row of the group"


def top_k(predictor: Predictor, rows: Any, k: int, *, group: str | None = None) -> pl.DataFrame:
    """The `k` most probable rows of each group, best first; equal ones in their order.

    Args:
        predictor: gives the probabilities.
        rows: as `Predictor.predict` takes them.
        k: how many rows of each group.
        group: the raw column whose equal values make a group, for instance the user; without it all rows are one.

    Returns:
        Columns `row` (number of the row, from 0), the group column if any, and `probability`; groups in the order
        in which they first appear.
    """
    if k < 1:
        raise DataError(f"top_k is {k}; it must be at least 1")
    if group in (ROW, PROBABILITY, _FIRST):
        raise DataError(f"the group column is called {group!r}, like a column of the answer; rename it")
    groups = [] if group is None else [group]
    best = pl.DataFrame()
    seen = 0
    for frame in _frames(predictor, rows, groups):
        rows_so_far = pl.Series(ROW, range(seen, seen + len(frame)), dtype=pl.Int64)
        probabilities = pl.Series(PROBABILITY, predictor.predict_frame(frame))
        own = [frame[name] for name in groups]
        chunk = pl.DataFrame([*own, rows_so_far, probabilities, rows_so_far.alias(_FIRST)])
        best = _best(pl.concat([best, chunk]) if len(best.columns) else chunk, k, groups)
        seen += len(frame)
    return best.select([ROW, *groups, PROBABILITY]) if len(best.columns) else best


def _best(candidates: pl.DataFrame, k: int, groups: Sequence[str]) -> pl.DataFrame:
    """The best k of each group, groups ordered by their first row, which each kept row remembers."""
    over = [pl.col(name) for name in groups] or [pl.lit(0)]
    candidates = candidates.with_columns(pl.col(_FIRST).min().over(over))
    ordered = candidates.sort([_FIRST, PROBABILITY, ROW], descending=[False, True, False])
    return ordered.filter(pl.int_range(pl.len()).over(over) < k)


def _frames(predictor: Predictor, rows: Any, also: Sequence[str]) -> Iterable[pl.DataFrame]:
    if isinstance(rows, str | Path):
        return read_frames(rows, predictor.schema, also=also)
    return [rows_to_frame(rows, predictor.schema, also=also)]
