import random
from pathlib import Path

import numpy as np
import pytest

from thresher.data.config import DataConfig, DenseConfig, FieldConfig, SyntheticConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.data.summary import _curve, preview, table_statistics


def write(path: Path) -> DataConfig:
    rng = random.Random(0)
    rows = [f"{rng.choice('0001')},{rng.choice('aaab')},{at},{rng.choice(['', 'u', 'u|v'])},{at}" for at in range(1000)]
    path.write_text("click,site,user,tags,n\n" + "\n".join(rows) + "\n")
    fields = (
        FieldConfig(name="site"),
        FieldConfig(name="user", min_count=2),
        FieldConfig(name="tags", separator="|", pooling="mean"),
        FieldConfig(name="count", column="n", transform="log2"),
    )
    return DataConfig(paths=(str(path),), label="click", fields=fields, dense=(DenseConfig(name="n"),))


def test_statistics_of_a_table(tmp_path: Path) -> None:
    table = encode(build_source(write(tmp_path / "a.csv")), tmp_path / "out")
    found = table_statistics(table, head=1)
    assert found.num_rows == table.metadata["rows"]
    assert found.positive_share["train"] == pytest.approx(0.25, abs=0.05)
    fields = {field.name: field for field in found.fields}
    assert fields["site"].num_features == 3
    assert fields["site"].head[0] == ("a", table.feature_counts[1])
    assert fields["site"].head_share == pytest.approx(0.75, abs=0.05)
    assert set(fields["site"].unknown_share.values()) == {0.0}
    assert set(fields["user"].unknown_share.values()) == {1.0}  # every user is seen once
    assert fields["tags"].num_features == 3
    assert sum(many for _, many in fields["count"].tail) == fields["count"].num_features - 1
    ranks, counts = zip(*found.frequency_curve, strict=True)
    assert ranks[0] == 1
    assert counts[0] == table.feature_counts.max()
    assert list(counts) == sorted(counts, reverse=True)
    seen = table.feature_counts[table.feature_counts > 0]
    assert (ranks[-1], counts[-1]) == (len(seen), seen.min())


def test_the_frequency_curve_reaches_the_rarest_feature() -> None:
    counts = np.concatenate([np.arange(5, 5_000), [1, 2, 4], np.zeros(1_000, np.int64)])
    curve = _curve(counts)
    assert curve[-1] == (len(counts) - 1_000, 1)  # features without a row are no part of it
    assert {1, 2, 4, 5} <= {count for _, count in curve}  # nor does the tail fall in one step
    assert _curve(np.zeros(3, np.int64)) == ()


def test_preview_of_fields(tmp_path: Path) -> None:
    source = build_source(write(tmp_path / "a.csv"))
    found = preview(source)
    assert (found.rows_seen, found.rows_estimated, found.complete) == (1000, 1000, True)
    assert found.positive_share == pytest.approx(0.25, abs=0.06)
    fields = {field.name: field for field in found.fields}
    assert fields["site"].examples[0] == ("a", "a")
    assert fields["user"].rare_share == 1.0
    assert fields["tags"].multi_valued
    assert fields["tags"].distinct == 2
    assert fields["count"].transform == "log2"
    assert found.dense[0][0] == "n"
    assert found.reasons == ()
    assert not list(tmp_path.glob("out*"))


def test_preview_of_a_source_without_files() -> None:
    source = build_source(DataConfig(source="synthetic", synthetic=SyntheticConfig(num_rows=12_000)))
    found = preview(source)
    assert (found.rows_seen, found.rows_estimated, found.complete) == (10_000, None, False)


def test_preview_shows_guesses_and_invalid_values(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("click,n\n" + "0,1\n1,x\n,2\n" * 20)
    config = DataConfig(
        paths=(str(tmp_path / "a.csv"),), label="click", fields=(FieldConfig(name="n", transform="log2"),)
    )
    found = preview(build_source(config))
    assert found.bad_labels == 20
    assert found.fields[0].broken == 20
    (tmp_path / "b.csv").write_text("click,site\n" + "0,u\n1,v\n" * 20)
    guessed = preview(build_source(DataConfig(paths=(str(tmp_path / "b.csv"),))))
    assert dict(guessed.reasons)["click"].startswith("label")
