from dataclasses import replace

import pytest

from thresher.data.config import DataConfig, SplitConfig, SyntheticConfig
from thresher.experiment.prune import encode_data
from thresher.experiment.run.data_summary import data_summary

SYNTHETIC = DataConfig(source="synthetic", synthetic=SyntheticConfig(num_rows=1_000, field_size=10), split_seed=3)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return encode_data(SYNTHETIC, tmp_path_factory.mktemp("encoded") / "table")


def test_source_split_and_rows(table):
    found = data_summary(SYNTHETIC, table)
    rows = {name: len(table.split(name).labels) for name in ("train", "validation", "test")}
    assert found == {"source": "synthetic", "split": "random, 80% / 10% / 10%, seed 3", "rows": rows}
    assert sum(rows.values()) == 1_000


def test_files_are_named_without_their_folders(table):
    config = DataConfig(paths=("/home/me/clicks.csv",), split=SplitConfig(by="time", column="day"))
    found = data_summary(config, table)
    assert (found["source"], found["split"]) == ("clicks.csv", "by time (column day)")
    by_fold = replace(config, split=SplitConfig(by="column", column="fold"))
    assert data_summary(by_fold, table)["split"] == "by the column fold"
