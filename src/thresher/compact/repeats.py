"""Rows of a table that are equal in columns and values: found by hash, confirmed entry by entry. Pure numpy."""

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]
_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))


def distinct_rows(begins: Positions, columns: npt.NDArray[np.int64], values: Values) -> Positions | None:
    """For each non-empty row the first row that equals it, or None when all differ.

    Args:
        begins: where each row begins among the entries `[R]`.
        columns: column of each entry `[K]`.
        values: value of each entry `[K]`; compared bit by bit.
    """
    num_rows, num_entries = len(begins), len(columns)
    if num_rows < 2:
        return None
    sizes = np.diff(begins, append=num_entries)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    keys = _mix(bits | columns.astype(np.uint64) << np.uint64(32))
    # rows whose first entry and size are nobody else's repeat nothing: in trained tables that is almost all of them
    firsts = keys[begins] + sizes.astype(np.uint64)
    _, places, counts = np.unique(firsts, return_inverse=True, return_counts=True)
    doubtful = np.flatnonzero(counts[places] > 1)
    if not len(doubtful):
        return None
    hashes = np.add.reduceat(keys, begins)[doubtful] + _mix(sizes[doubtful].astype(np.uint64))
    _, first_places, groups = np.unique(hashes, return_index=True, return_inverse=True)
    same_as = np.arange(num_rows)
    same_as[doubtful] = doubtful[first_places[groups]]
    repeats = np.flatnonzero(same_as != np.arange(num_rows))
    repeats = repeats[sizes[repeats] == sizes[same_as[repeats]]]
    mine, theirs = _entries_of(begins, sizes, repeats), _entries_of(begins, sizes, same_as[repeats])
    unequal = (columns[mine] != columns[theirs]) | (bits[mine] != bits[theirs])
    row_of_entry = np.repeat(repeats, sizes[repeats])
    confirmed = np.setdiff1d(repeats, row_of_entry[unequal])
    result = np.arange(num_rows)
    result[confirmed] = same_as[confirmed]
    return result if len(confirmed) else None


def _entries_of(begins: Positions, sizes: Positions, rows: Positions) -> Positions:
    """Indices of all entries of these rows, row after row."""
    lengths = sizes[rows]
    ends = np.cumsum(lengths)
    skipped: Positions = np.repeat(begins[rows] - (ends - lengths), lengths)
    return np.arange(len(skipped)) + skipped


def _mix(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    keys = (keys ^ (keys >> np.uint64(31))) * _MIX[0]
    return (keys ^ (keys >> np.uint64(29))) * _MIX[1]
