import numpy as np
import pytest

from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.errors import ConfigError, DataError


@pytest.fixture
def table(tmp_path):
    made_up = SyntheticConfig(num_rows=500, field_size=10)
    return encode(build_source(DataConfig(source="synthetic", synthetic=made_up)), tmp_path / "first")


def encoded_config(table, **more) -> DataConfig:
    return DataConfig(source="encoded", paths=(str(table.folder),), **more)


def test_the_table_is_linked_into_another_folder(table, tmp_path):
    again = encode(build_source(encoded_config(table)), tmp_path / "second")
    assert again.folder == tmp_path / "second"
    assert again.metadata == table.metadata
    np.testing.assert_array_equal(again.split("test").ids, table.split("test").ids)
    ids = "train/ids.npy"
    assert (again.folder / ids).samefile(table.folder / ids)


def test_linking_again_changes_nothing_and_other_tables_are_not_overwritten(table, tmp_path):
    encode(build_source(encoded_config(table)), tmp_path / "second")
    changed = (tmp_path / "second").stat().st_mtime_ns
    encode(build_source(encoded_config(table)), tmp_path / "second")
    assert (tmp_path / "second").stat().st_mtime_ns == changed
    made_up = SyntheticConfig(num_rows=400, field_size=10)
    other = encode(build_source(DataConfig(source="synthetic", synthetic=made_up)), tmp_path / "other")
    with pytest.raises(DataError, match="contains another table"):
        encode(build_source(encoded_config(table)), other.folder)
    assert encode(build_source(encoded_config(table)), other.folder, overwrite=True).num_rows == 500


def test_encoding_settings_are_rejected(table):
    with pytest.raises(ConfigError, match=r"data\.split_seed has no effect"):
        build_source(encoded_config(table, split_seed=3))
    with pytest.raises(ConfigError, match="one folder"):
        build_source(DataConfig(source="encoded"))
    assert build_source(encoded_config(table)).plan.fields == table.schema.fields
