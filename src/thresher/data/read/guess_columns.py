"""Guesses the label and the fields of a file from its first rows, with a reason for each column."""

import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from thresher._internal.text import list_first
from thresher.data.config import DataConfig, FieldConfig
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
from thresher.data.read.raw_files import read_chunks
from thresher.data.read.text_rows import single_column_error
from thresher.data.schema import DatePart, FileFormat
from thresher.errors import DataError, FileFormatError, LabelError

SAMPLE_ROWS = 10_000
MANY_VALUES = 256  # an integer column with more distinct values is a quantity, unless its name says otherwise
FEW_ROWS = 50  # minimum number of values for a hint about a text column
NEARLY_ALL, OFTEN = 0.9, 0.4
UNIX_SECONDS = 1_000_000_000, 2_000_000_000  # 2001 to 2033: different integers in this range may be timestamps
SEPARATORS = ("|", ";", ",")
_LABEL_NAMES = (
    "label", "click", "clicked", "is_click", "is_clicked", "target", "y", "class", "conversion", "converted",
)  # fmt: skip
_ROW_ID_NAMES = ("id", "index", "row", "row_id", "rowid", "row_number", "uuid", "")
_CODE_ENDINGS = ("id", "ids", "code", "zip", "zipcode", "postcode", "hash", "key", "type", "category", "ip", "phone")
_CODE_WORDS = {
    "user", "customer", "member", "visitor", "buyer", "seller", "merchant", "account", "author", "artist",
    "item", "product", "sku", "brand", "movie", "song", "track", "album", "book", "article", "post", "video", "game",
    "ad", "advert", "creative", "campaign", "advertiser", "publisher", "banner", "keyword", "query",
    "site", "domain", "host", "page", "url", "app", "channel", "device", "browser", "session", "cookie",
    "store", "shop", "hotel", "restaurant", "venue", "city", "region", "country", "county", "district",
}  # fmt: skip
"""An integer column whose name ends in such a word (`user`, `targetItem`, not `user_visits`) is an identifier,"""
_QUANTITY_WORDS = {"per", "on", "by", "in", "num", "count"}
"""except if the name contains one of these: `visits_per_user`, `time_on_page`."""


@dataclass(frozen=True)
class Guess:
    """The label and the fields, guessed or as set, and a reason for each column."""

    label: str
    fields: tuple[FieldConfig, ...]
    reasons: tuple[tuple[str, str], ...]  # (column, its role and why)
    only_label: bool = False  # the fields are set
    unused: tuple[str, ...] = ()  # columns without a role, if the fields are set
    labels: tuple[LabelValue, ...] = ()  # the values of the label column in the first rows


def guess_columns(path: Path, file_format: FileFormat, config: DataConfig | None = None) -> Guess:
    """Guess the label and fields of a file; what `config` sets (label, fields, drop, positive) is used as it is.

    `file_format` must come from `resolve_format`.
    """
    config = config or DataConfig()
    sample = first_rows(path, file_format, config)
    label, why = _guess_label(sample, config, path)
    labels = count_labels(sample[label], config.positive)
    if config.positive or any(each.meaning is None for each in labels):
        why += f"; {describe_labels(labels)}"
        why += "" if config.positive else "; set `positive` to the values that mean 1"
    reasons, fields, roles = [(label, f"label: {why}")], list[FieldConfig](), _roles_as_set(config)
    others = [name for name in sample.columns if name != label]
    for name in others:
        if name in roles:
            reasons.append((name, roles[name]))
        elif not config.fields:
            field, reason = _guess_field(name, sample[name])
            reasons.append((name, reason))
            fields += [] if field is None else [field]
    if not fields and not config.fields:
        raise DataError("no column is left as a field; set data.fields", file=path)
    unused = tuple(name for name in others if config.fields and name not in roles)
    return Guess(label, config.fields or tuple(fields), tuple(reasons), bool(config.fields), unused, labels)


def _roles_as_set(config: DataConfig) -> dict[str, str]:
    """The roles of the columns that the settings name."""
    named = [(config.weight, "sample weight: as set"), (config.split.column, "not used: it decides the split")]
    named += [(dense.column or dense.name, "dense: as set") for dense in config.dense]
    named += [(name, "not used: dropped in the settings") for name in config.drop]
    for field in config.fields:
        transform = "" if field.transform == "none" else f", {field.transform}"
        named.append((field.column or field.name, f"field: as set{transform}"))
    roles: dict[str, str] = {}
    for column, role in named:
        if column:
            roles[column] = f"{roles[column]}; {role}" if column in roles else role
    return roles


def first_rows(path: Path, file_format: FileFormat, config: DataConfig) -> pl.DataFrame:
    """The first rows of a file, for guessing."""
    frames, num_rows = list[pl.DataFrame](), 0
    chunks = read_chunks(path, file_format, header=not config.columns, block_bytes=1 << 22, bad_rows=config.bad_rows)
    for chunk in islice(chunks, 2):  # a last line without a line end is a separate chunk
        frames.append(chunk.frame)
        num_rows += len(chunk.frame)
        if num_rows >= SAMPLE_ROWS:
            break
    if not num_rows:
        raise DataError("there are no rows", file=path)
    return pl.concat(frames).head(SAMPLE_ROWS)


def _guess_label(sample: pl.DataFrame, config: DataConfig, path: Path) -> tuple[str, str]:
    if config.label is not None:
        return config.label, "as set"
    used = {*config.drop, config.weight, config.split.column}
    used |= {field.column or field.name for field in config.fields}
    used |= {dense.column or dense.name for dense in config.dense}
    free = [name for name in sample.columns if name not in used and not sample[name].dtype.is_nested()]
    binary = [name for name in free if _binary(sample[name], config.positive)]
    for wanted in _LABEL_NAMES:
        for name in free:
            if name.lower() == wanted and name in binary:
                return name, "by its name, and it is 0/1"
            if name.lower() == wanted:
                raise LabelError(_not_binary(name, sample[name], config.positive), file=path, column=name)
    if len(binary) == 1:
        return binary[0], "the only 0/1 column"
    for name, place in ((sample.columns[0], "first"), (sample.columns[-1], "last")):
        if name in binary:
            return name, f"the {place} column is 0/1"
    if problem := single_column_error(sample.columns):
        raise FileFormatError(problem, file=path)
    found = f"several are 0/1: {list_first(binary, 8)}" if binary else "none is 0/1"
    problem = f"cannot guess the label column ({found})"
    raise LabelError(f"{problem}. Set data.label, and data.positive if its values are not 0/1.", file=path)


def _not_binary(name: str, column: pl.Series, positive: tuple[str, ...]) -> str:
    """The error message for a column that is named like a label but is not 0/1; no other column is used instead."""
    values = count_labels(column, positive)[:SHOWN_VALUES]
    held = ", ".join(f"{each.value or 'empty'} ({each.count:,})" for each in values)
    return (
        f"its name is a label's, but its first rows are not 0 and 1: {held}. If it is the label, set data.label and "
        'data.positive, or data.bad_rows = "skip" to skip other values. If not, set data.label to another column, or '
        "add this one to data.drop."
    )


def _binary(column: pl.Series, positive: tuple[str, ...]) -> bool:
    distinct = as_text(column).unique().to_list()
    if len(distinct) > 2 and not positive:
        return False
    return {label_of(value, positive) for value in distinct} == {0, 1}


def _guess_field(name: str, column: pl.Series) -> tuple[FieldConfig | None, str]:
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
    if name.lower() in _ROW_ID_NAMES and rows > 1 and distinct == rows:
        return None, "not used: a row number, different in every row"
    if not name:
        return None, "not used: it has no name"
    counts = f"{distinct:,} distinct values in {rows:,} rows"
    if text.str.to_lowercase().is_in(["true", "false", ""]).all():
        return FieldConfig(name=name), f"categorical: text, {counts}"
    numbers, broken = as_numbers(column)
    present = numbers[~np.isnan(numbers)]
    if broken.any() or not len(present):
        hint = _text_hint(name, text, len(present), broken)
        return FieldConfig(name=name), f"categorical: text, {counts}" + (f"; {hint}" if hint else "")
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    names_one = words and words[-1].lower() in _CODE_WORDS and not _QUANTITY_WORDS & {word.lower() for word in words}
    is_whole = np.array_equal(present, np.floor(present))
    if name.lower().endswith(_CODE_ENDINGS) or (names_one and is_whole):
        return FieldConfig(name=name), f"categorical: numbers, but an identifier by its name; {counts}"
    if not is_whole:
        return FieldConfig(name=name, transform="quantiles"), f"numeric: fractions, quantile buckets; {counts}"
    if distinct > MANY_VALUES:
        hint = ""
        if UNIX_SECONDS[0] <= present.min() and present.max() < UNIX_SECONDS[1] and distinct >= NEARLY_ALL * rows:
            hint = '; seconds since 1970? Set transform = "date", date_format = "unix"'
        return FieldConfig(name=name, transform="log2"), f"numeric: many integers, log² buckets; {counts}{hint}"
    return FieldConfig(name=name), f"categorical: few integers, {counts}"


def _usual_part(column: pl.Series) -> DatePart:
    """The hour, or the weekday if all times are midnight."""
    return "hour" if (parse_dates(column, "").dt.hour() != 0).any() else "weekday"


def _text_hint(name: str, text: pl.Series, num_numbers: int, broken: npt.NDArray[np.bool_]) -> str:
    """What else a text column may be: as plain categories it would make a large and useless table."""
    present = text.filter(text != "")
    if len(present) < FEW_ROWS:
        return ""
    if _share(present.str.contains(r"^\d{4}-\d\d-\d\d")) >= NEARLY_ALL:
        part = _usual_part(present)
        return f'dates? Use "{name}:{part}", or transform = "date", date_part = "{part}" in the settings'
    if _share(present.str.contains(r"^\d\d?:\d\d(:\d\d)?(\.|$)")) >= NEARLY_ALL:
        return f'times of day? Use "{name}:hour"'
    if _share(present.str.contains(r"^[-+]?\d{1,3}(([ .']?\d{3})*,\d+|(,\d{3})+\.\d+)$")) >= NEARLY_ALL:
        return "numbers with commas? Use a decimal point and no thousands separator to make it numeric"
    for separator in SEPARATORS:
        if _share(present.str.contains(separator, literal=True)) >= OFTEN:
            return f"several values separated by {separator!r}? Set separator = {separator!r}"
    if num_numbers >= OFTEN * len(present):
        words = text.filter(pl.Series(broken)).value_counts(sort=True)[:, 0].head(3).to_list()
        return f"numbers except for {', '.join(map(repr, words))}? Leave those cells empty to make it numeric"
    if present.n_unique() >= NEARLY_ALL * len(present):
        return "nearly all values differ: a row id? Drop it"
    return ""


def _share(flags: pl.Series) -> float:
    return int(flags.sum()) / len(flags)
