"""The raw label column → 0/1, or an error that names the first row that is neither."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.raw_files import RawChunk
from thresher.data.schema import Label
from thresher.data.transforms import as_text

_BINARY = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


def label_of(value: str, positive: tuple[str, ...] = ()) -> int | None:
    """0, 1, or None for a value that is no label."""
    text = value.strip()
    if positive:
        return int(text in positive) if text else None
    return _BINARY.get(text.lower())


def read_labels(chunk: RawChunk, label: Label) -> NDArray[np.uint8]:
    """Labels of a chunk's rows."""
    text = as_text(chunk.frame[label.column])
    distinct = text.unique()
    known = {value: label_of(value, label.positive) for value in distinct.to_list()}
    bad = [value for value, meaning in known.items() if meaning is None]
    if bad:
        row = int(text.is_in(set(bad)).arg_true()[0])
        value = text[row]
        what = f"the label is {value!r}, expected 0 or 1" if value.strip() else "the label is missing"
        remedy = (
            "mend or drop the row" if not value.strip() else "choose another label, or say which values are positive"
        )
        raise chunk.error(f"{what}; {remedy}", row, label.column)
    positives = [value for value, meaning in known.items() if meaning == 1]
    return text.is_in(set(positives)).cast(pl.UInt8).to_numpy()
