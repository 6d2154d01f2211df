"""encode: a Spark data frame → an `EncodedTable`, for raw data that is too large for one machine.

    from thresher.integrations import spark
    table = spark.encode(frame, "shared/clicks", thresher.DataConfig(label="clicked"))

Executors count the values of their partitions, Spark adds the counts, the driver fits the vocabularies, and the
executors write the ids of their partitions, which the driver joins. `out` must be a folder that the driver and all
executors can write to, and Thresher must be installed on the executors. The vocabularies must fit into the memory of
one executor.
"""

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from thresher._internal.extras import missing_extra
from thresher._internal.storage.files import atomic_folder
from thresher._internal.storage.folder_manifest import write_manifest
from thresher.data.config import DataConfig
from thresher.data.encode.codes_to_ids import Edges
from thresher.data.encode.encode import check_rows, write_metadata
from thresher.data.encode.parts import (
    COUNTS,
    PartSummary,
    by_column,
    check_parts_plan,
    count_part,
    encode_part,
    fit,
    join_parts,
    part_edges,
    sample_part,
)
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.rows_to_codes import MAX_SKIPPED_SAMPLES
from thresher.data.encode.sources import EncodingPlan, differences
from thresher.data.encode.user_files import build_plan
from thresher.data.read.guess_columns import guess_columns
from thresher.data.read.raw_files import RawChunk
from thresher.data.read.sample_rows import SAMPLE_ROWS, Sample
from thresher.data.schema import FileFormat
from thresher.data.table import ARTEFACT, CONTENT_VERSION, EncodedTable, read_metadata
from thresher.errors import ConfigError, DataError, TableExistsError

try:
    import pyarrow as pa
    from pyspark.errors import PythonException
    from pyspark.sql import Column, DataFrame, functions as F  # noqa: N812 - Spark's own convention
except ImportError as error:
    raise missing_extra("thresher.integrations.spark", "PySpark and PyArrow", "spark") from error

SPLIT, HASH = "__thresher_split", "__thresher_hash"
_COUNT_COLUMNS = "field int, value string, train long, everything long"
_SUMMARY = -1  # the `field` of the row that holds a part's summary
_OUR_ERROR = re.compile(r"thresher\.errors\.\w+: (.+)")
Batches = Iterator[pa.RecordBatch]


def encode(
    frame: DataFrame, out: str | Path, config: DataConfig | None = None, *, overwrite: bool = False
) -> EncodedTable:
    """Encode a Spark data frame; opens the table in `out` if it has the same rows and settings.

    A random split is decided by a hash of the row and `split_seed`, so equal rows are in the same split.

    Args:
        out: folder of the table, which the driver and all executors can write to.
        config: the settings of `[data]`, without paths. Label and fields are guessed from a sample if they are absent.
        overwrite: replace a table in `out` that was encoded from other rows or settings.
    """
    folder, config = Path(out), config or DataConfig()
    if config.source != "files" or config.paths:
        raise ConfigError("data.source and data.paths have no effect for a Spark data frame. Remove them")
    plan = _plan(frame, config)
    rows, coded_plan = _rows(frame, plan, config)
    check_parts_plan(coded_plan)
    with _our_errors():
        edges = _edges(rows, coded_plan)
        counts, summaries, content = _counts(rows, coded_plan, edges)
    inputs = json.loads(
        json.dumps({"data": {"spark": content}, "plan": asdict(plan), "format": CONTENT_VERSION}, default=str)
    )
    metadata = None if overwrite else read_metadata(folder)
    if metadata is not None:
        if changes := differences(metadata["inputs"], inputs):
            problem = f"this table was encoded from other data or settings: {changes[0]}"
            raise TableExistsError(f"{problem}. Choose another folder, or overwrite this table.", file=folder)
        return EncodedTable.open(folder)
    total = _total(summaries)
    check_rows(total, plan)
    encoder = fit(coded_plan, counts, edges, summaries)
    with (
        atomic_folder(folder) as beside,
        TemporaryDirectory(prefix=f"{folder.name}.parts-", dir=folder.parent) as parts,
    ):
        encoder.save(Path(parts) / "encoder")
        with _our_errors():
            written = rows.mapInArrow(partial(_encode_partition, coded_plan, parts), "part string").collect()
        join_parts(sorted(Path(row.part) for row in written), beside, encoder)
        write_metadata(beside, inputs, total)
        write_manifest(beside, ARTEFACT)
    return EncodedTable.open(folder)


def _plan(frame: DataFrame, config: DataConfig) -> EncodingPlan:
    """Fields and label as set, or guessed from random rows."""
    if config.fields and config.label:
        return build_plan(config, None, None, FileFormat())
    rows = frame.orderBy(F.rand(0)).limit(SAMPLE_ROWS)
    sample: pl.DataFrame = pl.from_arrow(rows.toArrow())  # type: ignore[assignment]
    return build_plan(config, None, guess_columns(Sample(sample, None, None, False), config), FileFormat())


def _rows(frame: DataFrame, plan: EncodingPlan, config: DataConfig) -> tuple[DataFrame, EncodingPlan]:
    """The columns that are needed, with a hash of each row and, for a random split, the split of each row."""
    named = [*(field.column for field in plan.fields), *(dense.column for dense in plan.dense), plan.label.column]
    named = list(dict.fromkeys(filter(None, [*named, plan.weight, plan.split.column])))
    if missing := [name for name in named if name not in frame.columns]:
        raise DataError(f"there is no column {missing[0]!r}. The columns are {', '.join(frame.columns)}")
    columns: list[Column] = [F.col(f"`{name}`") for name in named]
    rows = frame.select(*columns, F.xxhash64(*columns).alias(HASH))
    if plan.split.kind != "random":
        return rows, plan
    uniform = F.pmod(F.xxhash64(F.lit(config.split_seed), *columns), F.lit(1 << 32)) / F.lit(float(1 << 32))
    train, validation, _ = plan.split.shares
    words = F.when(uniform < train, "train").when(uniform < train + validation, "validation").otherwise("test")
    return rows.withColumn(SPLIT, words), by_column(plan, SPLIT)


def _edges(rows: DataFrame, plan: EncodingPlan) -> Edges:
    if not any(field.transform == "quantiles" for field in plan.fields):
        return {}
    samples = rows.mapInArrow(partial(_sample_partition, plan), "numbers binary").collect()
    return part_edges(plan, [_from_bytes(row.numbers, plan) for row in samples])


def _counts(rows: DataFrame, plan: EncodingPlan, edges: Edges) -> tuple[pl.DataFrame, list[PartSummary], str]:
    """The counts of all partitions by field and value, the summaries, and what identifies the rows."""
    counted = rows.mapInArrow(partial(_count_partition, plan, edges), _COUNT_COLUMNS).persist()
    try:
        merged = (
            counted.where(F.col("field") != _SUMMARY)
            .groupBy("field", "value")
            .agg(F.sum("train").alias("train"), F.sum("everything").alias("everything"))
        )
        counts = pl.DataFrame(pl.from_arrow(merged.toArrow())).cast(COUNTS)  # type: ignore[arg-type]
        found = [json.loads(row.value) for row in counted.where(F.col("field") == _SUMMARY).collect()]
    finally:
        counted.unpersist()
    content = sum(part.pop("hash") for part in found) % (1 << 64)
    return counts, [PartSummary(**part) for part in found], f"{content:016x}"


def _total(summaries: list[PartSummary]) -> PartSummary:
    rows = {name: sum(part.rows[name] for part in summaries) for name in summaries[0].rows} if summaries else {}
    return PartSummary(
        rows=rows,
        positives=sum(part.positives for part in summaries),
        skipped=sum(part.skipped for part in summaries),
        skipped_samples=[sample for part in summaries for sample in part.skipped_samples][:MAX_SKIPPED_SAMPLES],
    )


def _sample_partition(plan: EncodingPlan, batches: Batches) -> Iterator[pa.RecordBatch]:
    with TemporaryDirectory() as scratch:
        numbers = sample_part(plan, _chunks(batches), Path(scratch) / "scratch")
    yield pa.RecordBatch.from_pydict({"numbers": [numbers.tobytes()]})


def _from_bytes(numbers: bytes, plan: EncodingPlan) -> Any:
    width = sum(field.transform == "quantiles" for field in plan.fields)
    return np.frombuffer(numbers, np.float64).reshape(-1, width)


def _count_partition(plan: EncodingPlan, edges: Edges, batches: Batches) -> Iterator[pa.RecordBatch]:
    content = 0

    def hashed(chunk: RawChunk) -> RawChunk:
        nonlocal content
        content = (content + int(chunk.frame[HASH].to_numpy().view(np.uint64).sum(dtype=np.uint64))) % (1 << 64)
        return chunk

    with TemporaryDirectory() as scratch:
        counts, summary = count_part(plan, map(hashed, _chunks(batches)), Path(scratch) / "scratch", edges)
    text = json.dumps(summary.to_json() | {"hash": content})
    summary_row = pl.DataFrame({"field": [_SUMMARY], "value": [text], "train": [0], "everything": [0]}, schema=COUNTS)
    yield from pl.concat([counts, summary_row]).to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()


def _encode_partition(plan: EncodingPlan, parts: str, batches: Batches) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None, "runs on an executor"
    part = (
        Path(parts) / f"{task.partitionId():06d}-{task.attemptNumber()}"
    )  # a repeated task writes a folder of its own
    encode_part(plan, RowEncoder.load(Path(parts) / "encoder"), _chunks(batches), part)
    shutil.rmtree(part / "scratch")
    yield pa.RecordBatch.from_pydict({"part": [str(part)]})


def _chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[RawChunk]:
    for batch in batches:
        yield RawChunk(pl.DataFrame(pl.from_arrow(batch)))


@contextmanager
def _our_errors() -> Iterator[None]:
    """Raises Thresher's error of an executor as it is, without Spark's traceback."""
    try:
        yield
    except PythonException as error:
        if found := _OUR_ERROR.search(str(error)):
            raise DataError(found[1]) from None
        raise
