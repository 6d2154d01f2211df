import copy
import pickle
import threading

import numpy as np
import pytest
import torch

from thresher.compact.table import CompactTable
from thresher.errors import FormatError, OutsideTableError


def random_table(num_features, embedding_dim, density, seed=0):
    generator = np.random.default_rng(seed)
    mask = generator.random((num_features, embedding_dim)) < density
    values = generator.standard_normal(mask.shape, np.float32)
    return CompactTable.from_mask(mask, values), mask, np.where(mask, values, 0)


@pytest.mark.parametrize("density", [1.0, 0.98, 0.3, 0.01])
def test_a_kept_entry_of_value_zero_stays_kept(density):
    mask = np.random.default_rng(0).random((500, 32)) < density
    table = CompactTable.from_mask(mask, np.zeros(mask.shape))
    assert table.num_parameters == mask.sum()
    np.testing.assert_array_equal(table.mask(), mask)


@pytest.mark.parametrize(("num_features", "density"), [(300, 1.0), (300, 0.3), (3000, 0.01), (300000, 0.00001)])
def test_a_saved_table_is_the_same_and_the_file_is_little_more_than_its_bytes(tmp_path, num_features, density):
    table, _, dense = random_table(num_features, 64, density)
    table.save(tmp_path / "table.safetensors")
    loaded = CompactTable.load(tmp_path / "table.safetensors")
    assert loaded.layout == table.layout
    assert loaded.storage_bytes == table.storage_bytes
    assert table.storage_bytes <= (tmp_path / "table.safetensors").stat().st_size <= table.storage_bytes + 1024
    ids = np.random.default_rng(1).integers(0, num_features, 1000)
    np.testing.assert_array_equal(loaded.lookup(ids), dense[ids])
    assert not loaded.arrays["values"].flags.writeable
    assert [file.name for file in tmp_path.iterdir()] == ["table.safetensors"]


def test_lookup_takes_tensors_of_any_shape_and_names_the_id_outside():
    table, _, dense = random_table(100, 8, 0.2)
    ids = torch.tensor([[[5, 7]], [[99, 0]]], dtype=torch.int32)
    vectors = table.lookup(ids)
    assert isinstance(vectors, torch.Tensor)
    torch.testing.assert_close(vectors, torch.from_numpy(dense)[ids.long()])
    assert table.lookup(np.zeros((0, 3), np.int32)).shape == (0, 3, 8)
    with pytest.raises(OutsideTableError, match="id 100 is outside a table of 100 rows"):
        table.lookup(np.array([3, 100, -1]))
    np.testing.assert_array_equal(table.lookup(np.array([-1, 3, 100]), out_of_range="zeros")[[0, 2]], np.zeros((2, 8)))


def test_width_one_and_empty_tables():
    table, _, dense = random_table(1000, 1, 0.1)
    np.testing.assert_array_equal(table.lookup(np.arange(1000)), dense)
    empty = CompactTable.from_mask(np.zeros((100_000, 64), np.bool_), np.zeros((100_000, 64)))
    assert empty.num_parameters == 0
    assert empty.storage_bytes < 64
    assert not empty.lookup(np.arange(100)).any()


def test_many_threads_may_look_up_at_once():
    table, _, dense = random_table(5000, 16, 0.05)
    failures = []

    def serve(seed):
        ids = np.random.default_rng(seed).integers(0, 5000, (50, 200))
        failures.extend(1 for batch in ids if not np.array_equal(table.lookup(batch), dense[batch]))

    threads = [threading.Thread(target=serve, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize(
    ("positions", "message"), [([2, 1], "ascending"), ([1, 1], "ascending"), ([0, 6], "outside"), ([-1, 2], "outside")]
)
def test_entries_out_of_order_or_outside_are_refused(positions, message):
    with pytest.raises(ValueError, match=message):
        CompactTable.from_entries((3, 2), np.array(positions), np.ones(2))


def test_a_file_that_is_not_a_table_is_refused(tmp_path):
    path = tmp_path / "table.safetensors"
    for content in (b"", b"no table", b"\xff" * 40, b"\x02\x00\x00\x00\x00\x00\x00\x00{}"):
        path.write_bytes(content)
        with pytest.raises(FormatError, match=r"table\.safetensors"):
            CompactTable.load(path)


def test_a_table_can_be_sent_to_another_process(tmp_path):
    table, _, dense = random_table(300, 8, 0.1)
    table.lookup(np.arange(3))
    table.save(tmp_path / "table.safetensors")
    for original in (table, CompactTable.load(tmp_path / "table.safetensors")):
        for other in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original)):
            np.testing.assert_array_equal(other.lookup(np.arange(300)), dense)
