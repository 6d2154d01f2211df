"""The raw label column → 0/1, which rows are neither, and what its values were taken for, in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher._internal.text import list_first
from thresher.data.encode.row_encoder import raw_column
from thresher.data.encode.transforms import as_text
from thresher.data.schema import Label
from thresher.errors import LabelError

SHOWN_VALUES = 5
_BINARY = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


@dataclass(frozen=True)
class LabelValue:
    """One value of the label column."""

    value: str
    count: int
    meaning: int | None
    """0, 1, or None: no label."""


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
        why = "is not a label: expected 0 or 1. Set data.positive to the values that mean 1, or choose another column"
        bad.append((text.is_in(wrong - missing).to_numpy(), why))
    if missing:
        bad.append((text.is_in(missing).to_numpy(), "is no label: it is missing; mend or drop the row"))
    return labels, bad


def count_labels(column: pl.Series, positive: tuple[str, ...] = ()) -> tuple[LabelValue, ...]:
    """The values of a label column and what they mean, the most frequent first."""
    counts = (
        as_text(column).alias("value").value_counts(name="count").sort(["count", "value"], descending=[True, False])
    )
    return tuple(LabelValue(value, count, label_of(value, positive)) for value, count in counts.iter_rows())


def label_words(values: Sequence[LabelValue]) -> str:
    """Which values count as 1, which as 0, and which are no label: the most frequent of each, with their counts.

    >>> label_words([LabelValue("no", 700, 0), LabelValue("yes", 42, 1), LabelValue("maybe", 3, 0)])
    'yes (42) → 1; no (700), maybe (3) → 0'
    """
    parts = []
    for meaning, told in ((1, "→ 1"), (0, "→ 0"), (None, "→ no label")):
        found = [value for value in values if value.meaning == meaning]
        shown = list_first((f"{each.value or 'empty'} ({each.count:,})" for each in found), SHOWN_VALUES)
        if found or meaning == 1:
            parts.append(f"{shown or 'nothing'} {told}")
    return "; ".join(parts)


def check_positive(values: Sequence[LabelValue], positive: tuple[str, ...], *, file: Path, column: str) -> None:
    """Raise where a positive value was not found, but the same in other letters or digits, such as `Yes` for `yes`."""
    known = {each.value.strip() for each in values}
    for wanted in positive:
        near = [] if wanted in known else [each.value for each in values if _sign(each.value) == _sign(wanted)]
        if near:
            held = ", ".join(repr(each.value) for each in values[:SHOWN_VALUES])
            raise LabelError(
                f"data.positive is {wanted!r}, but no row has this value. Found {held}. Did you mean {near[0]!r}?",
                file=file,
                column=column,
            )


def _sign(value: str) -> str | float:
    """What stays of a value when the way it is written does not count."""
    text = value.strip().casefold()
    try:
        return float(text)
    except ValueError:
        return text
