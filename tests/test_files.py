import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from thresher.errors import ThresherError
from thresher.files import replacing_file, replacing_folder


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_others_may_read_what_a_writer_kept_to_itself(tmp_path, umask):
    """safetensors writes files only their owner may read; who serves a bundle is often somebody else."""
    with replacing_file(tmp_path / "one.safetensors") as beside:
        save_file({"x": np.zeros(3)}, beside)
    with replacing_folder(tmp_path / "folder") as beside:
        (beside / "inner").mkdir()
        save_file({"x": np.zeros(3)}, beside / "inner" / "two.safetensors")
    for path in ("one.safetensors", "folder/inner/two.safetensors"):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o644


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "file").write_text("before")
    with pytest.raises(ZeroDivisionError), replacing_file(tmp_path / "file") as beside:
        beside.write_text(f"half{1 / 0}")
    with pytest.raises(ThresherError, match="cannot write"), replacing_folder(tmp_path / "folder") as beside:
        raise OSError("disk full")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "before"
