import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from thresher._internal.files import atomic_file, atomic_folder, exclusive_lock, replace_folder
from thresher.errors import ThresherError


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_others_may_read_what_a_writer_kept_to_itself(tmp_path, umask):
    """safetensors writes files only their owner may read; who serves a bundle is often somebody else."""
    with atomic_file(tmp_path / "one.safetensors") as beside:
        save_file({"x": np.zeros(3)}, beside)
    with atomic_folder(tmp_path / "folder") as beside:
        (beside / "inner").mkdir()
        save_file({"x": np.zeros(3)}, beside / "inner" / "two.safetensors")
    for path in ("one.safetensors", "folder/inner/two.safetensors"):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o644


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "file").write_text("before")
    with pytest.raises(ZeroDivisionError), atomic_file(tmp_path / "file") as beside:
        beside.write_text(f"half{1 / 0}")
    with pytest.raises(ThresherError, match="cannot write"), atomic_folder(tmp_path / "folder") as beside:
        raise OSError("disk full")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "before"


@pytest.fixture(scope="module")
def dead() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_process_left_is_removed_when_its_place_is_next_written(tmp_path, dead):
    kept = [f".other.{dead}.partial", f".file.{os.getppid()}.partial", ".file.partial", ".file.x.partial"]
    for name in (f".file.{dead}.partial", *kept):
        (tmp_path / name).write_text("half")
    (tmp_path / f".folder.{dead}.partial").mkdir()
    (tmp_path / f".folder.{dead}.partial" / "inner").write_text("half")
    with atomic_file(tmp_path / "file") as beside:
        beside.write_text("whole")
    with atomic_folder(tmp_path / "folder"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder", *kept}


def test_a_folder_moved_aside_by_a_killed_process_is_put_back(tmp_path, dead):
    aside = tmp_path / f".folder.{dead}.old"
    aside.mkdir()
    (aside / "file").write_text("before")
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "folder") as beside:
        (beside / "file").write_text(f"half{1 / 0}")
    assert (tmp_path / "folder" / "file").read_text() == "before"
    aside.mkdir()  # killed a moment later, when the new folder was in its place
    with atomic_folder(tmp_path / "folder") as beside:
        (beside / "file").write_text("after")
    assert (tmp_path / "folder" / "file").read_text() == "after"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_folder_that_cannot_take_its_place_leaves_the_old_one_there(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("before")
    rename = Path.replace

    def refuse(self, target):
        if self.name.endswith(".partial"):
            raise OSError(5, os.strerror(5))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(ThresherError, match="Input/output error"), atomic_folder(tmp_path / "folder") as beside:
        (beside / "file").write_text("after")
    assert (tmp_path / "folder" / "file").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_links_leave_the_mode_of_their_originals(tmp_path, umask):
    original = tmp_path / "original"
    original.write_text("mine alone")
    original.chmod(0o600)
    with atomic_folder(tmp_path / "folder") as beside:
        os.link(original, beside / "link")
    assert original.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("replacing", [atomic_file, atomic_folder])
def test_a_full_disk_is_told_plainly_whoever_finds_it(tmp_path, replacing):
    """safetensors does not raise an OSError."""
    told = pytest.raises(ThresherError, match=r"cannot write .*place: .*too large.*free space")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, before[1]))
    try:
        with told, replacing(tmp_path / "place") as beside:
            save_file({"x": np.zeros(10_000)}, beside if beside.is_file() else beside / "x.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_one_process_at_a_time(tmp_path):
    with exclusive_lock(tmp_path / "made" / "here"):
        told = r"another process is at work in .*here; wait until it has ended"
        with pytest.raises(ThresherError, match=told), exclusive_lock(tmp_path / "made" / "here"):
            pass
        with exclusive_lock(tmp_path / "made"):  # another folder, even that around it
            pass
    with exclusive_lock(tmp_path / "made" / "here"):
        pass


def test_a_locked_folder_takes_its_lock_to_its_place(tmp_path):
    """The next to come finds a new folder where the locked one was, and is not kept out of it."""
    with exclusive_lock(tmp_path / "partial"):
        replace_folder(tmp_path / "partial", tmp_path / "place")
        with pytest.raises(ThresherError, match="at work"), exclusive_lock(tmp_path / "place"):
            pass
        with exclusive_lock(tmp_path / "partial"):
            assert (tmp_path / "partial").exists()


def test_a_killed_process_keeps_nobody_out(tmp_path):
    code = "import sys, pathlib\nfrom thresher._internal.files import exclusive_lock\n"
    code += f"with exclusive_lock(pathlib.Path({str(tmp_path)!r})):\n"
    code += "    print('in', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in\n"
        with pytest.raises(ThresherError, match="at work"), exclusive_lock(tmp_path):
            pass
        other.kill()
    with exclusive_lock(tmp_path):
        pass


def test_a_lock_ends_with_its_block_though_a_forked_child_lives(tmp_path):
    with exclusive_lock(tmp_path):
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
    try:
        with exclusive_lock(tmp_path):
            assert os.waitpid(child, os.WNOHANG) == (0, 0)  # it lives
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ThresherError, match="is a file, where a folder is to be"), exclusive_lock(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "mine"
