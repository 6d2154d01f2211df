"""Arrays with a checksum behind the data: any change of the file is noticed, and files without one can be read."""

import numpy as np
import pytest

from thresher._internal.storage.sealed_arrays import SEAL_BYTES, load_array, save_array
from thresher.errors import FormatError

VALUES = np.linspace(-3, 3, 40, dtype=np.float32)


def test_values_are_read_again_also_by_numpy(tmp_path):
    save_array(tmp_path / "a.npy", VALUES)
    assert np.array_equal(load_array(tmp_path / "a.npy", "Delete it."), VALUES)
    assert np.array_equal(np.load(tmp_path / "a.npy"), VALUES)


def test_a_file_of_an_earlier_release_is_read(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    assert np.array_equal(load_array(tmp_path / "a.npy", "Delete it."), VALUES)


def test_each_flipped_byte_is_noticed(tmp_path):
    path = tmp_path / "a.npy"
    save_array(path, VALUES)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(FormatError, match=r"a\.npy is damaged .* Delete it\."):
            load_array(path, "Delete it.")


@pytest.mark.parametrize("removed", [slice(130, 131), slice(140, 140 + SEAL_BYTES), slice(-1, None), slice(200, None)])
def test_a_file_that_is_shorter_is_refused(tmp_path, removed):
    path = tmp_path / "a.npy"
    save_array(path, VALUES)
    content = bytearray(path.read_bytes())
    del content[removed]
    path.write_bytes(content)
    with pytest.raises(FormatError, match="is damaged"):
        load_array(path, "Delete it.")


@pytest.mark.parametrize("values", [np.zeros((2, 2), np.float32), np.zeros(4), np.array(["x"])])
def test_other_arrays_are_refused(tmp_path, values):
    save_array(tmp_path / "a.npy", values)
    with pytest.raises(FormatError, match="expected float32 numbers in one dimension"):
        load_array(tmp_path / "a.npy", "Delete it.")


def test_the_content_of_another_file_is_refused(tmp_path):
    save_array(tmp_path / "soft_labels.npy", VALUES)
    (tmp_path / "validation.npy").write_bytes((tmp_path / "soft_labels.npy").read_bytes())
    with pytest.raises(FormatError, match="is damaged"):
        load_array(tmp_path / "validation.npy", "Delete it.")
