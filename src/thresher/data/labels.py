"""The raw label column → 0/1, and which rows are neither."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.row_encoder import raw_column
from thresher.data.schema import Label
from thresher.data.transforms import as_text

_BINARY = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


def label_of(value: str, positive: tuple[str, ...] = ()) -> int | None:
    """0, 1, or None for a value that is no label."""
    text = value.strip()
    if positive:
        return int(text in positive) if text else None
    return _BINARY.get(text.lower())


def read_labels(frame: pl.DataFrame, label: Label) -> tuple[NDArray[np.uint8], list[tuple[NDArray[np.bool_], str]]]:
    """Labels of the rows (0 where there is none), and masks of the bad rows with what is wrong with them."""
    text = as_text(raw_column(frame, label.column))
    known = {value: label_of(value, label.positive) for value in text.unique().to_list()}
    positives = {value for value, meaning in known.items() if meaning == 1}
    labels = text.is_in(positives).cast(pl.UInt8).to_numpy()
    wrong = {value for value, meaning in known.items() if meaning is None}
    missing = {value for value in wrong if not value.strip()}
    bad = []
    if wrong - missing:
        why = "is no label: 0 or 1 is expected; choose another label, or say which values are positive"
        bad.append((text.is_in(wrong - missing).to_numpy(), why))
    if missing:
        bad.append((text.is_in(missing).to_numpy(), "is no label: it is missing; mend or drop the row"))
    return labels, bad
