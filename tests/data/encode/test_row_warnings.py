"""A warning if validation has values that no training row has, and nothing trains their feature."""

import random
from pathlib import Path

import numpy as np
import pytest

from thresher.data.config import DataConfig, SplitConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.row_warnings import expected_unknown_share, unknown_shares, untrained_unknowns
from thresher.data.encode.sources import build_source
from thresher.data.summary import preview

ROWS = 4000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    draw = random.Random(0)
    rows = [f"{draw.randrange(2)},u{draw.randrange(ROWS)},s{draw.randrange(9)}" for _ in range(ROWS)]
    (path := tmp_path / "rows.csv").write_text("click,user,site\n" + "\n".join(rows) + "\n")
    return path


def warnings_of(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_unknown_values_that_nothing_trains_give_a_warning(path: Path, caplog) -> None:
    table = encode(build_source(DataConfig(paths=(str(path),))), path.parent / "encoded")
    (message,) = warnings_of(caplog)
    share = unknown_shares(table.split("validation"), table)[0]
    assert untrained_unknowns(table) == {"user": pytest.approx(share)}
    assert f"no training row has: user ({100 * share:.0f} %)." in message
    assert "data.min_count = 2" in message
    assert "drop columns" not in message
    assert unknown_shares(table.split("validation"), table, max_rows=100)[0] == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize("settings", [{"min_count": 2}, {"vocabulary_from": "all"}, {"drop": ("user",)}])
def test_trained_or_few_unknown_values_give_no_warning(path: Path, caplog, settings) -> None:
    encode(build_source(DataConfig(paths=(str(path),), **settings)), path.parent / "encoded")
    assert not warnings_of(caplog)


def test_columns_that_differ_in_every_row_should_be_dropped(tmp_path: Path, caplog) -> None:
    rows = "".join(f"{row % 2},u{row},s{row % 9}\n" for row in range(300))
    (path := tmp_path / "rows.csv").write_text("click,user,site\n" + rows)
    encode(build_source(DataConfig(paths=(str(path),))), tmp_path / "encoded")
    (message,) = warnings_of(caplog)
    assert "user (100 %)" in message
    assert "drop columns that differ in nearly every row" in message


def test_the_share_is_expected_before_encoding(path: Path) -> None:
    config = DataConfig(paths=(str(path),))
    table = encode(build_source(config), path.parent / "encoded")
    user, site = (field.unknown_share for field in preview(build_source(config)).fields)
    assert user == pytest.approx(unknown_shares(table.split("validation"), table)[0], abs=0.04)
    assert site == pytest.approx(0, abs=1e-6)
    column = DataConfig(paths=(str(path),), split=SplitConfig(by="time", column="user"))
    assert {field.unknown_share for field in preview(build_source(column)).fields} == {None}


def test_the_expected_share_is_that_of_random_splits() -> None:
    counts = np.array([1, 1, 1, 2, 2, 3, 5, 40])
    values = np.repeat(np.arange(len(counts)), counts)
    draws = np.random.default_rng(0).random((20_000, len(values))) < 0.8  # in training
    seen = np.zeros((20_000, len(counts)), bool)
    for at in range(len(counts)):
        seen[:, at] = draws[:, values == at].any(axis=1)
    unknown = ~draws & ~seen[:, values]
    assert expected_unknown_share(counts, 0.8) == pytest.approx(unknown.sum() / (~draws).sum(), rel=0.02)
