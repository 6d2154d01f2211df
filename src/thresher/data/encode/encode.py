"""encode(): a data source → an `EncodedTable` on disk. The raw rows are read once and never held.

First pass: each chunk's values become provisional codes (numbered as they appear), counted and written by split.
Then the vocabularies are known, and the second pass turns codes into feature ids, block by block.
All is written beside the final folder, which appears at the end or not at all; a run that was killed goes on where it
was when it is called again.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from thresher._internal.files import clean_up_interrupted_writes, exclusive_lock, remove, replace_folder
from thresher._internal.text import list_first
from thresher.data.batches.prefetch import prefetched
from thresher.data.batches.split import SPLITS
from thresher.data.encode.encoded_source import EncodedSource
from thresher.data.encode.fingerprint import differences, fingerprint
from thresher.data.encode.first_pass import FirstPass
from thresher.data.encode.journal import Journal
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.second_pass import write_table
from thresher.data.encode.sources import DataSource, EncodingPlan
from thresher.data.encode.splitters import build_splitter, find_cut
from thresher.data.encode.vocabularies import Fitted, fit_vocabularies
from thresher.data.schema import Schema
from thresher.data.table import TABLE_VERSION, EncodedTable, read_facts
from thresher.data.table_folder import check_replaceable
from thresher.errors import DataError, TableExistsError, ThresherError

Progress = Callable[[int, int | None, str], None]
"""Called with (done, total, message); total is None while it is unknown."""


def encode(
    source: DataSource, folder: str | Path, *, overwrite: bool = False, progress: Progress | None = None
) -> EncodedTable:
    """Build the table in `folder`, or reopen it when it was made from the same data with the same settings.

    A folder made from other data or settings raises `DataError`, unless `overwrite` is set. An interrupted run over the
    same data and settings is continued.
    """
    folder, progress = Path(folder), progress or _silent
    clean_up_interrupted_writes(folder)
    if folder.exists() and not (folder / "table.json").exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError("exists and is not an encoded table; choose another folder", file=folder)
    if isinstance(source, EncodedSource):
        return source.take_over(folder, overwrite=overwrite)
    inputs = _inputs(source)
    if folder.exists():
        facts = None if overwrite else read_facts(folder)
        if facts is not None:
            _refuse_changes(facts["inputs"], inputs, folder)
            _remove_scratch(folder)
            return EncodedTable.open(folder)
    partial = folder.with_name(folder.name + ".partial")
    for place in (folder, partial):
        check_replaceable(place)
    with exclusive_lock(partial):
        try:
            _build(source, partial, inputs, progress)
            replace_folder(partial, folder)
        except (OSError, pl.exceptions.PolarsError) as error:
            shutil.rmtree(partial, ignore_errors=True)
            reason, file = getattr(error, "strerror", None), getattr(error, "filename", None)
            raise DataError(f"cannot be written: {reason or error}", file=file or folder) from error
        except ThresherError:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    _remove_scratch(folder)
    return EncodedTable.open(folder)


def _build(source: DataSource, partial: Path, inputs: dict[str, Any], progress: Progress) -> None:
    name = fingerprint(inputs)
    journal = Journal.load(partial, name)
    if journal is None:
        for left in partial.iterdir():  # of other data or settings; the folder itself stays, it is locked
            remove(left)
        journal = Journal(name, cut=find_cut(source))
    known = None if source.plan.vocabulary_like is None else RowEncoder.load(source.plan.vocabulary_like)
    plan = source.plan if known is None else _plan_like(source.plan, known.schema)
    first = FirstPass(plan, partial, journal, build_splitter(source, journal.cut), known)
    with closing(first):
        if not journal.complete:
            for chunk in prefetched(source.chunks(journal.position), 1):  # parse the next while this one is coded
                first.read(chunk)
                if chunk.bytes_done is not None and source.num_bytes:
                    progress(chunk.bytes_done, source.num_bytes, "reading")
                else:
                    progress(sum(first.staging.rows), None, "reading")
            first.save(complete=True)
    _check(first, source)
    progress(0, None, "vocabularies")
    fitted = fit_vocabularies(first, partial, known, append=plan.new_values == "append")
    _write_facts(first, fitted, partial, inputs)
    write_table(first, fitted, partial, progress)


def _remove_scratch(folder: Path) -> None:
    """Remove from a finished table what an interrupted run would have needed.

    The journal goes last: while it is there, a run killed in here has left something.
    """
    journal = folder / "journal.json"
    if journal.exists():
        with suppress(OSError):  # of another user, perhaps: the table is whole
            shutil.rmtree(folder / "values", ignore_errors=True)
            for part in [*folder.glob("*/*.part"), journal]:
                part.unlink()


def _plan_like(plan: EncodingPlan, schema: Schema) -> EncodingPlan:
    """The fields and scaling of an earlier table; rows, split and the rest as the new plan says."""
    names = tuple(field.name for field in plan.fields)
    if names != schema.field_names or len(plan.dense) != schema.num_dense:
        raise DataError(
            f"the fields are {', '.join(names)}; the earlier table has {', '.join(schema.field_names)}",
            file=plan.vocabulary_like,
        )
    counts = {field.name: field.min_count for field in plan.fields}
    fields = tuple(replace(field, min_count=counts[field.name]) for field in schema.fields)
    return replace(plan, fields=fields, dense=schema.dense)


def _write_facts(first: FirstPass, fitted: Fitted, folder: Path, inputs: dict[str, Any]) -> None:
    plan, journal = first.plan, first.journal
    schema = Schema(
        fields=fitted.fields,
        label=plan.label,
        dense=fitted.dense,
        weight=plan.weight,
        file_format=plan.file_format,
    )
    RowEncoder(schema, fitted.vocabularies).save(folder)
    np.save(folder / "feature_counts.npy", fitted.feature_counts)
    facts = {
        "version": TABLE_VERSION,
        "fingerprint": journal.fingerprint,
        "rows": dict(zip(SPLITS, journal.rows, strict=True)),
        "positives": journal.positives,
        "skipped": journal.skipped,
        "skipped_samples": journal.skipped_samples,
        "inputs": inputs,
    }
    (folder / "table.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _check(first: FirstPass, source: DataSource) -> None:
    rows, positives = sum(first.journal.rows), first.journal.positives
    files = source.inputs().get("files", [])
    file = files[0]["name"] if files else None
    skipped = f" ({first.journal.skipped:,} bad rows were skipped)" if first.journal.skipped else ""
    if rows == 0:
        raise DataError(f"there are no rows{skipped}", file=file)
    if positives in (0, rows):
        only = "1" if positives else "0"
        column = first.plan.label.column
        raise DataError(f"all {rows:,} labels are {only}; both classes are needed", file=file, column=column)
    for name, count in zip(SPLITS, first.journal.rows, strict=True):
        if count == 0:
            by_time = first.plan.split.by == "time"
            advice = "too many have the same moment for a split by time" if by_time else "more rows are needed"
            raise DataError(f"none of the {rows:,} rows falls into the {name} split; {advice}", file=file)


def _inputs(source: DataSource) -> dict[str, Any]:
    plan = asdict(source.plan)
    for name in ("memory_mb",):  # how the table is made, not what is in it
        plan.pop(name)
    like = source.plan.vocabulary_like
    if like is not None:
        facts = read_facts(Path(like))
        if facts is None:
            raise DataError("no encoded table here; vocabulary_like must name one", file=like)
        plan["vocabulary_like"] = facts["fingerprint"]
    content = {"data": source.inputs(), "plan": plan, "format": TABLE_VERSION}
    normal: dict[str, Any] = json.loads(json.dumps(content))
    return normal


def _refuse_changes(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    changes = differences(before, now)
    if changes:
        raise TableExistsError(
            "this table was encoded from other data or settings: "
            + list_first(changes, separator="; ")
            + ". Choose another folder, or overwrite this table.",
            file=folder,
        )


def _silent(done: int, total: int | None, message: str) -> None:
    pass
