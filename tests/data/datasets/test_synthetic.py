from pathlib import Path

import numpy as np
import polars as pl

from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.datasets import SyntheticSource, build_synthetic_source
from thresher.data.encode.encode import encode


def source(**settings: object) -> SyntheticSource:
    return build_synthetic_source(DataConfig(source="synthetic", synthetic=SyntheticConfig(**settings)))  # type: ignore[arg-type]


def test_rows_are_a_function_of_the_settings() -> None:
    assert source(num_rows=500).frame().equals(source(num_rows=500).frame())
    assert not source(num_rows=500).frame().equals(source(num_rows=500, seed=1).frame())


def test_signal_fields_decide_the_label_and_noise_fields_do_not() -> None:
    made = source(num_rows=40_000, num_signal_fields=2, num_noise_fields=2, field_size=20, positive_share=0.4)
    frame = made.frame()
    assert abs(frame["label"].mean() - 0.4) < 0.03  # type: ignore[operator]

    def spread(fields: tuple[str, ...]) -> float:
        """Standard deviation of the positive share over the common values of a field."""
        shares = frame.group_by(*fields).agg(pl.col("label").mean(), pl.len()).filter(pl.col("len") > 200)
        return float(shares["label"].std())  # type: ignore[arg-type]

    for noise in made.noise_fields:
        assert spread((noise,)) < 0.03
        for signal in made.signal_fields:
            assert spread((signal,)) > 0.1


def test_frequencies_follow_zipf() -> None:
    counts = source(num_rows=50_000, field_size=100, zipf=1.0).frame()["noise_0"].value_counts(sort=True)["count"]
    assert np.isclose(counts[0] / counts[9], 10, rtol=0.15)


def test_a_synthetic_source_encodes(tmp_path: Path) -> None:
    made = source(num_rows=3_000, num_signal_fields=2, num_noise_fields=1, field_size=50)
    table = encode(made, tmp_path / "out")
    assert table.num_rows == 3_000
    assert table.schema.field_names == ("signal_0", "signal_1", "noise_0")
