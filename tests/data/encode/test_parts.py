"""Rows that are encoded in parts give the same table as rows that are encoded at once, except for their order."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from thresher.data.config import DataConfig, DenseConfig, FieldConfig, SplitConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.parts import (
    check_parts_plan,
    count_part,
    encode_part,
    fit,
    join_parts,
    part_edges,
    sample_part,
)
from thresher.data.encode.sources import build_source
from thresher.data.read.raw_files import RawChunk
from thresher.data.schema import SPLITS
from thresher.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def frame():
    draw = np.random.default_rng(0)
    rows = 900
    tags = ["|".join(draw.choice(["a", "b", "c", "d"], draw.integers(0, 4))) for _ in range(rows)]
    return pl.DataFrame(
        {
            "shop": [f"s{k}" for k in draw.zipf(1.5, rows)],
            "price": [None if k % 50 == 0 else round(float(x), 2) for k, x in enumerate(draw.lognormal(2, 1, rows))],
            "clicks": draw.integers(0, 200, rows),
            "tags": tags,
            "age": draw.normal(40, 9, rows),
            "w": draw.uniform(0.5, 2, rows),
            "part": draw.choice(["train", "validation", "test"], rows, p=[0.8, 0.1, 0.1]),
            "clicked": draw.integers(0, 2, rows),
        }
    )


CONFIG = DataConfig(
    label="clicked",
    fields=(
        FieldConfig(name="shop", min_count=2),
        FieldConfig(name="price", transform="quantiles", num_buckets=8),
        FieldConfig(name="clicks", transform="log2"),
        FieldConfig(name="tags", separator="|", pooling="mean"),
    ),
    dense=(DenseConfig(name="age"),),
    weight="w",
    split=SplitConfig(column="part"),
)


def in_parts(plan, frame, folder, num_parts):
    parts = [[RawChunk(frame[at::num_parts])] for at in range(num_parts)]
    samples = [sample_part(plan, part, folder / f"sample-{at}") for at, part in enumerate(parts)]
    edges = part_edges(plan, samples)
    counted = [count_part(plan, part, folder / f"count-{at}", edges) for at, part in enumerate(parts)]
    counts = pl.concat([counts for counts, _ in counted])
    counts = counts.group_by("field", "value").agg(pl.col("train").sum(), pl.col("everything").sum())
    encoder = fit(plan, counts, edges, [summary for _, summary in counted])
    folders = [folder / f"part-{at}" for at in range(num_parts)]
    for part, to in zip(parts, folders, strict=True):
        encode_part(plan, encoder, part, to)
    (folder / "joined").mkdir()
    join_parts(folders, folder / "joined", encoder)
    return folder / "joined", encoder


@pytest.mark.parametrize("vocabulary_from", ["train", "all"])
def test_parts_give_the_table_of_all_rows(frame, tmp_path, vocabulary_from):
    config = replace(CONFIG, vocabulary_from=vocabulary_from, paths=(str(tmp_path / "rows.parquet"),))
    num_parts = 3
    order = [row for at in range(num_parts) for row in range(at, len(frame), num_parts)]
    frame[order].write_parquet(tmp_path / "rows.parquet")
    source = build_source(config)
    table = encode(source, tmp_path / "table")
    joined, encoder = in_parts(source.plan, frame, tmp_path, num_parts)
    assert encoder.schema.fields == table.schema.fields
    assert np.array_equal(np.load(joined / "feature_counts.npy"), table.feature_counts)
    (found,), (expected,) = encoder.schema.dense, table.schema.dense
    assert (found.mean, found.scale) == pytest.approx((expected.mean, expected.scale), rel=1e-9)
    for at, vocabulary in enumerate(encoder.vocabularies):
        assert (
            vocabulary.values.to_list()
            == pl.read_parquet(table.folder / f"vocabularies/{at}.parquet")["value"].to_list()
        )
    for split in SPLITS:
        for file in sorted((table.folder / split).glob("*.npy")):
            expected = np.load(file)
            np.testing.assert_allclose(np.load(joined / split / file.name), expected, rtol=1e-6, err_msg=file.name)


def test_an_invalid_row_of_a_part_is_reported(frame, tmp_path):
    plan = build_plan_of(frame, tmp_path)
    broken = frame.with_columns(pl.lit("maybe").alias("part"))
    with pytest.raises(DataError, match="must be train, validation or test"):
        count_part(plan, [RawChunk(broken)], tmp_path / "scratch", {"price": (1.0,)})


def test_a_split_that_needs_all_rows_is_refused(frame, tmp_path):
    plan = build_plan_of(frame, tmp_path)
    with pytest.raises(ConfigError, match="a split by random cannot be decided row by row"):
        check_parts_plan(replace(plan, split=SplitConfig()))
    with pytest.raises(ConfigError, match="a split by time cannot be decided row by row"):
        check_parts_plan(replace(plan, split=SplitConfig(by="time", column="age")))


def build_plan_of(frame, folder):
    frame.write_parquet(folder / "rows.parquet")
    return build_source(replace(CONFIG, paths=(str(folder / "rows.parquet"),))).plan
