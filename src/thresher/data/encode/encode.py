"""encode(): a data source → an `EncodedTable` on disk. The raw rows are read once and never held in memory.

First pass (`rows_to_codes`): values become provisional codes, which are counted and written to scratch files.
Second pass (`codes_to_ids`): the counts give the vocabularies, and the codes become feature ids.
The table is built in a folder beside its place, which is renamed when it is complete.
"""

import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl

from thresher._internal.storage.files import (
    clean_up_interrupted_writes,
    exclusive_lock,
    remove,
    replace_folder,
    write_json,
)
from thresher._internal.storage.folder_manifest import write_manifest
from thresher._internal.text import list_first
from thresher.data.batches.shuffle import prefetched
from thresher.data.encode.codes_to_ids import Fitted, fit_vocabularies, write_arrays
from thresher.data.encode.ids_source import IdsSource
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.row_warnings import check_skipped, untrained_unknowns, warn_about_skipped, warn_about_unknowns
from thresher.data.encode.rows_to_codes import CodedRows
from thresher.data.encode.sources import DataSource, EncodingPlan, differences, fingerprint
from thresher.data.encode.split_rows import build_splitter
from thresher.data.encode.user_files import EncodedSource
from thresher.data.schema import Schema, SplitName
from thresher.data.table import (
    ARTEFACT,
    CONTENT_VERSION,
    SCRATCH,
    TABLE_VERSION,
    EncodedTable,
    check_replaceable,
    read_metadata,
)
from thresher.errors import DataError, FormatError, TableExistsError, ThresherError

logger = logging.getLogger(__name__)
Progress = Callable[[int, int | None, str], None]  # (done, total or None while it is unknown, message)


def encode(
    source: DataSource, folder: str | Path, *, overwrite: bool = False, progress: Progress | None = None
) -> EncodedTable:
    """Build the table in `folder`, or open it if it was built from the same data with the same settings."""
    table = _build_or_open(source, Path(folder), overwrite, progress)
    if shares := untrained_unknowns(table):
        logger.warning(warn_about_unknowns(shares))
    if warning := warn_about_skipped(table):
        logger.warning(warning)
    return table


def _build_or_open(source: DataSource, folder: Path, overwrite: bool, progress: Progress | None) -> EncodedTable:
    progress = progress or (lambda done, total, message: None)
    clean_up_interrupted_writes(folder)
    if folder.exists() and not (folder / "table.json").exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError("exists and is not an encoded table; choose another folder", file=folder)
    if isinstance(source, EncodedSource):
        return source.copy_to(folder, overwrite=overwrite)
    inputs = _inputs(source)
    partial = folder.with_name(folder.name + ".partial")
    metadata = None if overwrite else read_metadata(folder)
    if metadata is not None:
        if changes := differences(metadata["inputs"], inputs):
            problem = f"this table was encoded from other data or settings: {list_first(changes, separator='; ')}"
            raise TableExistsError(f"{problem}. Choose another folder, or overwrite this table.", file=folder)
        if partial.exists():  # of a killed process, or of one that is encoding now
            with suppress(ThresherError), exclusive_lock(partial):
                shutil.rmtree(partial, ignore_errors=True)
        try:
            return EncodedTable.open(folder, verify=True)
        except FormatError as error:
            logger.warning(f"{error} It is encoded again from the same data.")
    for place in (folder, partial):
        check_replaceable(place)
    with exclusive_lock(partial):
        for leftover in partial.iterdir():  # of a killed process; the folder itself is locked and stays
            remove(leftover)
        try:
            _build(source, partial, inputs, progress)
            replace_folder(partial, folder)
        except BaseException as error:
            shutil.rmtree(partial, ignore_errors=True)
            if isinstance(error, OSError | pl.exceptions.PolarsError):
                reason, file = getattr(error, "strerror", None), getattr(error, "filename", None)
                raise DataError(f"cannot be written: {reason or error}", file=file or folder) from error
            raise
    return EncodedTable.open(folder)


def _build(source: DataSource, folder: Path, inputs: dict[str, Any], progress: Progress) -> None:
    if isinstance(source, IdsSource):
        written = source.write(folder)
        check_rows(written, source.plan, file=source.paths[0].name)
        write_metadata(folder, inputs, written)
        shutil.rmtree(folder / SCRATCH)
        write_manifest(folder, ARTEFACT)
        return
    known = None if source.plan.vocabulary_like is None else RowEncoder.load(source.plan.vocabulary_like)
    plan = source.plan if known is None else _plan_like(source.plan, known.schema)
    coded = CodedRows(plan, folder / SCRATCH, build_splitter(source), known)
    with closing(coded):
        for chunk in prefetched(source.chunks(), 1):  # parse the next chunk while this one is coded
            coded.add(chunk)
            if chunk.bytes_done is not None and source.num_bytes:
                progress(chunk.bytes_done, source.num_bytes, "reading")
            else:
                progress(sum(coded.rows.values()), None, "reading")
        coded.finish()
    files = source.inputs().get("files", [])
    check_rows(coded, plan, file=files[0]["name"] if files else None)
    progress(0, None, "vocabularies")
    fitted = fit_vocabularies(coded, known)
    write_arrays(coded, fitted, folder, progress)
    _write_schema(coded, fitted, folder, inputs)
    shutil.rmtree(folder / SCRATCH)
    write_manifest(folder, ARTEFACT)


def _plan_like(plan: EncodingPlan, schema: Schema) -> EncodingPlan:
    """The plan with the fields and scaling of an earlier table."""
    names = tuple(field.name for field in plan.fields)
    if names != schema.field_names or len(plan.dense) != schema.num_dense:
        problem = f"the fields are {', '.join(names)}, but the earlier table has {', '.join(schema.field_names)}"
        raise DataError(problem, file=plan.vocabulary_like)
    pairs = zip(schema.fields, plan.fields, strict=True)
    fields = tuple(replace(known, min_count=planned.min_count) for known, planned in pairs)
    return replace(plan, fields=fields, dense=schema.dense)


def _write_schema(coded: CodedRows, fitted: Fitted, folder: Path, inputs: dict[str, Any]) -> None:
    plan, dense = coded.plan, fitted.dense
    schema = Schema(
        fields=fitted.fields, label=plan.label, dense=dense, weight=plan.weight, file_format=plan.file_format
    )
    RowEncoder(schema, fitted.vocabularies).save(folder)
    np.save(folder / "feature_counts.npy", fitted.feature_counts)
    write_metadata(folder, inputs, coded)


class CountedRows(Protocol):
    """What table.json says about the rows."""

    @property
    def rows(self) -> Mapping[SplitName, int]: ...
    @property
    def positives(self) -> int: ...
    @property
    def skipped(self) -> int: ...
    @property
    def skipped_samples(self) -> Sequence[tuple[str, int | None, str]]: ...


def write_metadata(folder: Path, inputs: Mapping[str, Any], counted: CountedRows) -> None:
    """Write table.json, the last file of a table."""
    metadata = {
        "version": TABLE_VERSION,
        "fingerprint": fingerprint(inputs),
        "rows": counted.rows,
        "positives": counted.positives,
        "skipped": counted.skipped,
        "skipped_samples": counted.skipped_samples,
        "inputs": inputs,
    }
    write_json(folder / "table.json", metadata)


def check_rows(counted: CountedRows, plan: EncodingPlan, *, file: str | None = None) -> None:
    """Raise if there are no rows, most rows are bad, there is only one class, or a split is empty."""
    rows, positives = sum(counted.rows.values()), counted.positives
    check_skipped(rows, counted.skipped, counted.skipped_samples)
    if rows == 0:
        raise DataError("there are no rows", file=file)
    if positives in (0, rows):
        only, column = "1" if positives else "0", plan.label.column
        raise DataError(f"all {rows:,} labels are {only}; both classes are needed", file=file, column=column)
    for name, count in counted.rows.items():
        if count == 0:
            by_time = plan.split.kind == "time"
            hint = "too many rows have the same time for a split by time" if by_time else "more rows are needed"
            raise DataError(f"none of the {rows:,} rows is in the {name} split; {hint}", file=file)


def _inputs(source: DataSource) -> dict[str, Any]:
    """Everything the table depends on, as JSON."""
    plan = asdict(source.plan)
    plan["split"]["by"] = source.plan.split.kind
    if source.plan.vocabulary_like is not None:
        metadata = read_metadata(Path(source.plan.vocabulary_like))
        if metadata is None:
            raise DataError("is not an encoded table; vocabulary_like needs one", file=source.plan.vocabulary_like)
        plan["vocabulary_like"] = metadata["fingerprint"]
    inputs: dict[str, Any] = json.loads(json.dumps({"data": source.inputs(), "plan": plan, "format": CONTENT_VERSION}))
    return inputs
