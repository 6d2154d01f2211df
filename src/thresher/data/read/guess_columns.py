"""Guesses the label and the fields of files from a sample of their rows, with a reason for each column."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from thresher._internal.text import list_first
from thresher.data.config import DataConfig, FieldConfig
from thresher.data.read.column_names import LABEL_NAMES, ROW_ID_NAMES, names_codes, names_time
from thresher.data.read.column_values import (
    SHOWN_VALUES,
    LabelValue,
    as_numbers,
    as_text,
    count_labels,
    describe_labels,
    label_of,
    parse_dates,
)
from thresher.data.read.sample_rows import Sample
from thresher.data.read.text_rows import single_column_error
from thresher.data.schema import DatePart
from thresher.errors import DataError, LabelError

logger = logging.getLogger(__name__)

MANY_VALUES = 256  # an integer column with more distinct values is a quantity, unless it holds codes
CODE_DIGITS = 8  # integers that all have the same number of digits, at least this many, are codes
FEW_BUCKETS = 8  # fewer log² buckets than this say little: quantiles are used instead
FEW_ROWS = 50  # minimum number of values for a hint about a text column
NEARLY_ALL, OFTEN = 0.9, 0.4
UNIX_SECONDS = 1e9, 2e9  # 2001 to 2033; integers in this range, or thousand times as large, may be timestamps
EARLIEST_SECONDS = 1e8  # 1973; of a column whose name says that it holds times
UNEVEN = 0.1  # largest distance of the distinct values of ids from an even spread over their range
ROWS_PER_VALUE = 4  # with fewer rows for each value, a quantity as a category would learn nothing
ISO_DATE = r"^\d{4}-\d\d-\d\d"
SEPARATORS = ("|", ";", ",")
YES_AND_NO: list[set[str]] = [{"yes", "no"}, {"y", "n"}, {"true", "false"}, {"t", "f"}, {"1", "-1"}]


@dataclass(frozen=True)
class Guess:
    """The label and the fields, guessed or as set, and a reason for each column."""

    label: str
    fields: tuple[FieldConfig, ...]
    reasons: tuple[tuple[str, str], ...]  # (column, its role and why)
    only_label: bool = False  # the fields are set
    unused: tuple[str, ...] = ()  # columns without a role, if the fields are set
    labels: tuple[LabelValue, ...] = ()  # the values of the label column in the sample
    rows: str = ""  # which rows were used, if not all


def guess_columns(sample: Sample, config: DataConfig | None = None) -> Guess:
    """Guess the label and fields of files; what `config` sets (label, fields, drop, positive) is used as it is."""
    config, frame = config or DataConfig(), sample.frame
    label, why = _guess_label(frame, config, sample.file)
    if frame[label].dtype.is_nested():
        problem = f"has type {str(frame[label].dtype).lower()}; a label has one value per row. Set data.label"
        raise LabelError(problem, file=sample.file, column=label)
    labels = count_labels(frame[label], config.positive)
    if config.positive or any(each.meaning is None for each in labels):
        why += f"; {describe_labels(labels)}"
        why += "" if config.positive else "; set `positive` to the values that mean 1"
    reasons, fields, roles = [(label, f"label: {why}")], list[FieldConfig](), _roles_as_set(config)
    others = [name for name in frame.columns if name != label]
    for name in others:
        if name in roles:
            reasons.append((name, roles[name]))
        elif not config.fields:
            field, reason = _guess_field(name, frame[name], sample)
            reasons.append((name, reason))
            fields += [] if field is None else [field]
    if not fields and not config.fields:
        raise DataError("no column is left as a field; set data.fields", file=sample.file)
    _warn_about_copies(frame, label, [field.column or field.name for field in config.fields or fields])
    unused = tuple(name for name in others if config.fields and name not in roles)
    return Guess(
        label, config.fields or tuple(fields), tuple(reasons), bool(config.fields), unused, labels, sample.description
    )


def _warn_about_copies(frame: pl.DataFrame, label: str, columns: Sequence[str]) -> None:
    """Warn about fields that repeat the label: a model that reads them is of no use for new rows."""
    labels = as_text(frame[label])
    for name in dict.fromkeys(columns):
        if name in frame.columns and not frame[name].dtype.is_nested() and as_text(frame[name]).equals(labels):
            logger.warning(
                f"column {name!r} has the same values as the label {label!r}, so predictions would only repeat it. Add "
                "it to data.drop, or leave it out of the fields."
            )


def _roles_as_set(config: DataConfig) -> dict[str, str]:
    """The roles of the columns that the settings name."""
    named = [(config.weight, "sample weight: as you set it"), (config.split.column, "not used: it decides the split")]
    named += [(dense.column or dense.name, "dense: as you set it") for dense in config.dense]
    named += [(name, "not used: dropped in the settings") for name in config.drop]
    for field in config.fields:
        transform = "" if field.transform == "none" else f", {field.transform}"
        named.append((field.column or field.name, f"field: as you set it{transform}"))
    roles: dict[str, str] = {}
    for column, role in named:
        if column:
            roles[column] = f"{roles[column]}; {role}" if column in roles else role
    return roles


def _guess_label(sample: pl.DataFrame, config: DataConfig, path: Path | None) -> tuple[str, str]:
    if config.label is not None:
        return config.label, "as you set it"
    used = {*config.drop, config.weight, config.split.column}
    used |= {field.column or field.name for field in config.fields}
    used |= {dense.column or dense.name for dense in config.dense}
    free = [name for name in sample.columns if name not in used and not sample[name].dtype.is_nested()]
    binary = [name for name in free if _binary(sample[name], config.positive)]
    for wanted in LABEL_NAMES:
        for name in free:
            if name.lower() == wanted and name in binary:
                return name, "by its name, and it is 0/1"
            if name.lower() == wanted:
                raise LabelError(_not_binary(name, sample[name], config.positive), file=path, column=name)
    if len(binary) == 1:
        return binary[0], f"the only 0/1 column{_other_labels(sample, free, binary)}"
    for name, place in ((sample.columns[0], "first"), (sample.columns[-1], "last")):
        if name in binary:
            return name, f"the {place} column is 0/1{_other_labels(sample, free, binary)}"
    if error := single_column_error(sample.columns, path):
        raise error
    found = f"several are 0/1: {list_first(binary, 8)}" if binary else "none is 0/1"
    problem = f"cannot guess the label column ({found})"
    raise LabelError(f"{problem}. Set data.label, and data.positive if its values are not 0/1.", file=path)


def _other_labels(sample: pl.DataFrame, free: Sequence[str], binary: Sequence[str]) -> str:
    """A hint if other columns hold yes and no, or the like, and may be the label."""
    values = {name: set(as_text(sample[name]).str.to_lowercase().unique().to_list()) for name in free}
    others = [name for name in free if name not in binary and values[name] in YES_AND_NO]
    return f"; or is it {list_first(others, 3)}? Then set label and positive" if others else ""


def _not_binary(name: str, column: pl.Series, positive: tuple[str, ...]) -> str:
    """The error message for a column that is named like a label but is not 0/1; no other column is used instead."""
    values = count_labels(column, positive)[:SHOWN_VALUES]
    held = ", ".join(f"{each.value or 'empty'} ({each.count:,})" for each in values)
    return (
        f"its name is a label's, but its values are not 0 and 1: {held}. If it is the label, set data.label and "
        'data.positive, or data.bad_rows = "skip" to skip other values. If not, set data.label to another column, or '
        "add this one to data.drop."
    )


def _binary(column: pl.Series, positive: tuple[str, ...]) -> bool:
    distinct = as_text(column).unique().to_list()
    if len(distinct) > 2 and not positive:
        return False
    return {label_of(value, positive) for value in distinct} == {0, 1}


def _guess_field(name: str, column: pl.Series, sample: Sample) -> tuple[FieldConfig | None, str]:
    if isinstance(column.dtype, pl.List | pl.Array):
        return FieldConfig(name=name, pooling="mean"), "multi-valued: a list column, pooled by the mean"
    if column.dtype.is_nested():
        return None, "not used: a struct column"
    if column.dtype in (pl.Date, pl.Datetime):
        part = _usual_part(column)
        reason = f"date: a column of dates, the {part}; set date_part for another part"
        return FieldConfig(name=name, transform="date", date_part=part), reason
    text = as_text(column)
    distinct, rows = text.n_unique(), len(text)
    if name.lower() in ROW_ID_NAMES and rows > 1 and distinct == rows:
        return None, "not used: a row number, different in every row"
    if not name:
        return None, "not used: it has no name"
    counts = f"{distinct:,} distinct value{'s' if distinct != 1 else ''} in {rows:,} rows"
    if text.str.to_lowercase().is_in(["true", "false", ""]).all():
        return FieldConfig(name=name), f"categorical: text, {counts}"
    numbers, broken = as_numbers(column)
    present = numbers[~np.isnan(numbers)]
    # in a small part of many rows, most values of an identifier differ; a row id differs in all of them
    differ = rows >= FEW_ROWS and distinct >= (NEARLY_ALL * rows if sample.complete else rows)
    row_id = "; nearly all values differ: a row id? Drop it" if differ else ""
    if broken.any() or not len(present):
        if _are_dates(text):
            part = _usual_part(text)
            reason = f"date: text of dates, the {part}; set date_part for another part"
            return FieldConfig(name=name, transform="date", date_part=part), reason
        hint = _text_hint(name, text, len(present), broken)
        return FieldConfig(name=name), f"categorical: text, {counts}" + (f"; {hint}" if hint else row_id)
    is_whole = bool(np.array_equal(present, np.floor(present)))
    if names_codes(name, integers=is_whole):
        return FieldConfig(name=name), f"categorical: numbers, taken as ids because of the name; {counts}{row_id}"
    if not is_whole:
        return FieldConfig(name=name, transform="quantiles"), f"numeric: fractions, quantile buckets; {counts}"
    if why := _look_like_codes(name, text, present):
        return FieldConfig(name=name), f"categorical: {why}; {counts}{row_id}"
    if distinct > MANY_VALUES:
        if not _timestamp_hint(name, present) and _spread_like_ids(present, sample.num_rows or rows):
            return FieldConfig(name=name), f"categorical: integers spread evenly, as ids are; {counts}"
        return _many_integers(name, present, counts)
    return FieldConfig(name=name), f"categorical: few integers, {counts}"


def _look_like_codes(name: str, text: pl.Series, present: npt.NDArray[np.float64]) -> str:
    """Why integers are codes and not quantities, by the way they are written; empty if they are not."""
    digits = text.filter(text != "").str.strip_chars().str.strip_suffix(".0")
    if digits.str.contains(r"^0\d").any():
        return "numbers with leading zeros, so codes"
    if _timestamp_hint(name, present):
        return ""
    lengths = digits.str.len_bytes().unique().to_list()
    if len(lengths) > 1 or lengths[0] < CODE_DIGITS or not digits.str.contains(r"^\d+$").all():
        return ""
    hint = ""
    if lengths[0] == 8 and not digits.str.to_date("%Y%m%d", strict=False).has_nulls():
        hint = '; dates? Set transform = "date", date_format = "%Y%m%d"'
    return f"numbers of {lengths[0]} digits each, so codes{hint}"


def _spread_like_ids(present: npt.NDArray[np.float64], num_rows: int) -> bool:
    """Whether integers recur in the file and lie evenly in their range.

    Ids do, whatever their frequencies. Counts and amounts lie closer together at the small end, or in the middle.
    """
    values, counts = np.unique(present, return_counts=True)
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    num_values = len(values) + once**2 / (2 * max(twice, 1))  # in the file: Chao's estimate from a sample
    if values[0] < 0 or num_rows < ROWS_PER_VALUE * num_values:
        return False
    place = (values - values[0]) / (values[-1] - values[0])
    return bool(np.abs(place - np.linspace(0, 1, len(values))).max() < UNEVEN)


def _many_integers(name: str, present: npt.NDArray[np.float64], counts: str) -> tuple[FieldConfig, str]:
    """A quantity: log² buckets, or quantiles if the values are so close together that few buckets are left."""
    hint, low, high = _timestamp_hint(name, present), present.min(), present.max()
    if low > 2 and np.log(high) ** 2 - np.log(low) ** 2 < FEW_BUCKETS:
        reason = f"numeric: many integers in a narrow range, quantile buckets; {counts}{hint}"
        return FieldConfig(name=name, transform="quantiles"), reason
    return FieldConfig(name=name, transform="log2"), f"numeric: many integers, log² buckets; {counts}{hint}"


def _timestamp_hint(name: str, present: npt.NDArray[np.float64]) -> str:
    earliest = EARLIEST_SECONDS if names_time(name) else UNIX_SECONDS[0]
    for factor, hint in (1, "seconds since 1970? Set"), (1000, "milliseconds since 1970? Divide by 1000 and set"):
        if earliest * factor <= present.min() and present.max() < UNIX_SECONDS[1] * factor:
            return f'; {hint} transform = "date", date_format = "unix"'
    return ""


def _usual_part(column: pl.Series) -> DatePart:
    """The hour, or the weekday if all times are midnight."""
    return "hour" if (parse_dates(column, "").dt.hour() != 0).any() else "weekday"


def _are_dates(text: pl.Series) -> bool:
    """Whether all values that are not missing are dates in ISO 8601."""
    present = text.filter(text != "")
    return len(present) > 0 and present.str.contains(ISO_DATE).all() and not parse_dates(present, "").has_nulls()


def _text_hint(name: str, text: pl.Series, num_numbers: int, broken: npt.NDArray[np.bool_]) -> str:
    """What else a text column may be: as plain categories it would make a large and useless table."""
    present = text.filter(text != "")
    if len(present) < FEW_ROWS:
        return ""
    if _share(present.str.contains(ISO_DATE)) >= NEARLY_ALL:
        part = _usual_part(present)
        return f'dates? Use "{name}:{part}", or transform = "date", date_part = "{part}" in the settings'
    if _share(present.str.contains(r"^\d\d?:\d\d(:\d\d)?(\.|$)")) >= NEARLY_ALL:
        return f'times of day? Use "{name}:hour"'
    if _share(present.str.contains(r"^[-+]?\d{1,3}(([ .']?\d{3})*,\d+|(,\d{3})+\.\d+)$")) >= NEARLY_ALL:
        return "numbers with commas? Use a decimal point and no thousands separator to make it numeric"
    for separator in SEPARATORS:
        if _share(present.str.contains(separator, literal=True)) >= OFTEN:
            return f"several values separated by {separator!r}? Set separator = {separator!r}"
    if num_numbers >= OFTEN * len(present) and not names_codes(name, integers=True):
        words = text.filter(pl.Series(broken)).value_counts(sort=True)[:, 0].head(3).to_list()
        return f"numbers except for {', '.join(map(repr, words))}? Leave those cells empty to make it numeric"
    return ""


def _share(flags: pl.Series) -> float:
    return int(flags.sum()) / len(flags)
