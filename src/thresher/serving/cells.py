"""One cell of a row in memory, of whatever library → a plain value of Python, and its text.

A cell is read by itself: what other rows hold in its column changes nothing. Its text is the one it has in a polars
column of its kind (`data/transforms.py`). Not here: what a column of cells becomes.
"""

from collections.abc import Sequence, Set
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import polars as pl

from thresher.data.encode.transforms import EXACT_INTEGERS, as_text
from thresher.data.read.dates import temporal_text

Plain: TypeAlias = str | int | float | bool | None
PLAIN_TYPES = {str, int, float, bool}
MISSING_TYPES = ("NAType", "NaTType")
"""Of pandas, which is never imported: the types of `pd.NA` and `pd.NaT`."""


def plain_value(value: Any) -> Plain:
    """One value as text, number or truth, None or NaN for a missing one; TypeError for anything else."""
    if type(value) is str or value is None:  # nearly all there are
        return value
    if type(value).__name__ in MISSING_TYPES:
        return None
    if isinstance(value, np.datetime64 | np.timedelta64 | timedelta):
        return _temporal(value)
    if getattr(value, "ndim", None) == 0:  # a scalar of numpy or PyTorch
        narrow = "float32" in str(value.dtype) or "float16" in str(value.dtype)
        value = value.tolist()  # not item(): a masked one is missing
        if narrow and isinstance(value, float):  # the shortest text that means it, as a column of its kind has
            value = float(str(np.float32(value)))
    match value:
        case bool() | None:
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case str():
            return str.__str__(value)
        case Decimal():
            return _decimal(value)
        case bytes() | bytearray() | memoryview():
            return _decoded(bytes(value))
        case date() | time() | UUID():
            return str(value)
    raise TypeError(f"a {type(value).__name__}, where a text, a number or a date is expected")


def plain_cell(value: Any) -> Plain | list[Plain]:
    """A cell as a plain value, or as a list of them where it holds several, as a list, set, array or series does."""
    if isinstance(value, str | bytes | bytearray | memoryview) or not _holds_several(value):
        return plain_value(value)
    several = sorted(value, key=str) if isinstance(value, Set) else value  # a set's order differs from run to run
    return [plain_value(one) for one in several]


def text_of(value: Plain) -> str | None:
    """The text of a plain value, as `as_text` gives it; None for a missing one."""
    if value is None or value != value:
        return None
    if not isinstance(value, float):
        return str(value)
    if value.is_integer() and abs(value) < EXACT_INTEGERS:
        return str(int(value))
    # Python and polars agree on everything that is neither tiny nor huge
    return repr(value) if 1e-4 <= abs(value) < 1e15 else as_text(pl.Series([value], dtype=pl.Float64)).item()


def _holds_several(value: Any) -> bool:
    if isinstance(value, Sequence | Set):
        return True
    return (hasattr(value, "tolist") or hasattr(value, "to_list")) and getattr(value, "ndim", 1) > 0


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise TypeError(f"{value!r}, bytes that are not UTF-8") from None


def _temporal(value: np.datetime64 | np.timedelta64 | timedelta) -> str | None:
    kind = "datetime64" if isinstance(value, np.datetime64) else "timedelta64"
    moment = np.array([value], None if isinstance(value, np.generic) else "timedelta64[us]")
    if np.datetime_data(moment.dtype)[0] not in ("ns", "us", "ms") and moment.dtype != np.dtype("datetime64[D]"):
        moment = moment.astype(f"{kind}[us]")  # polars knows no other unit
    text: str | None = temporal_text(pl.Series(moment)).item()
    return text


def _decimal(value: Decimal) -> Plain:
    if not value.is_finite():
        return float(value)
    text = format(value, "f")
    return "0" if not value else text.rstrip("0").rstrip(".") if "." in text else text
