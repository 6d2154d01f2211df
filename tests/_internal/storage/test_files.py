import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from thresher._internal.storage import files
from thresher._internal.storage.files import atomic_file, atomic_folder, exclusive_lock, replace_folder
from thresher.errors import ThresherError


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_written_files_are_readable_by_other_users(tmp_path, umask):
    """safetensors creates files that only their owner can read."""
    with atomic_file(tmp_path / "one.safetensors") as temporary:
        save_file({"x": np.zeros(3)}, temporary)
    with atomic_folder(tmp_path / "folder") as temporary:
        (temporary / "inner").mkdir()
        save_file({"x": np.zeros(3)}, temporary / "inner" / "two.safetensors")
    for path in ("one.safetensors", "folder/inner/two.safetensors"):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o644


def test_a_failed_write_leaves_the_destination_unchanged(tmp_path):
    (tmp_path / "file").write_text("before")
    with pytest.raises(ZeroDivisionError), atomic_file(tmp_path / "file") as temporary:
        temporary.write_text(f"half{1 / 0}")
    with pytest.raises(ThresherError, match="cannot write"), atomic_folder(tmp_path / "folder") as temporary:
        raise OSError("disk full")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "before"


@pytest.fixture(scope="module")
def dead() -> int:
    """The id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_temporary_files_of_dead_processes_are_removed_by_the_next_write(tmp_path, dead):
    kept = [f".other.{dead}.partial", f".file.{os.getppid()}.partial", ".file.partial", ".file.x.partial"]
    for name in (f".file.{dead}.partial", *kept):
        (tmp_path / name).write_text("half")
    (tmp_path / f".folder.{dead}.partial").mkdir()
    (tmp_path / f".folder.{dead}.partial" / "inner").write_text("half")
    with atomic_file(tmp_path / "file") as temporary:
        temporary.write_text("complete")
    with atomic_folder(tmp_path / "folder"):
        pass
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder", *kept}


def test_a_folder_moved_aside_by_a_killed_process_is_restored(tmp_path, dead):
    aside = tmp_path / f".folder.{dead}.old"
    aside.mkdir()
    (aside / "file").write_text("before")
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "folder") as temporary:
        (temporary / "file").write_text(f"half{1 / 0}")
    assert (tmp_path / "folder" / "file").read_text() == "before"
    aside.mkdir()  # the process was killed after the new folder was renamed
    with atomic_folder(tmp_path / "folder") as temporary:
        (temporary / "file").write_text("after")
    assert (tmp_path / "folder" / "file").read_text() == "after"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_failed_rename_restores_the_old_folder(tmp_path, monkeypatch):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("before")
    rename = Path.replace

    def refuse(self, target):
        if self.name.endswith(".partial"):
            raise OSError(5, os.strerror(5))
        return rename(self, target)

    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr(files, "exchange", lambda first, second: False)  # two renames, as on other systems
    with pytest.raises(ThresherError, match="Input/output error"), atomic_folder(tmp_path / "folder") as temporary:
        (temporary / "file").write_text("after")
    assert (tmp_path / "folder" / "file").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_hard_links_keep_the_mode_of_their_originals(tmp_path, umask):
    original = tmp_path / "original"
    original.write_text("mine alone")
    original.chmod(0o600)
    with atomic_folder(tmp_path / "folder") as temporary:
        os.link(original, temporary / "link")
    assert original.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("atomic_write", [atomic_file, atomic_folder])
def test_a_full_disk_is_a_write_error(tmp_path, atomic_write):
    """Also from safetensors, which does not raise an OSError."""
    raises = pytest.raises(ThresherError, match=r"cannot write .*place: .*too large.*Free disk space")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, before[1]))
    try:
        with raises, atomic_write(tmp_path / "place") as temporary:
            save_file({"x": np.zeros(10_000)}, temporary if temporary.is_file() else temporary / "x.safetensors")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.iterdir())


def test_a_locked_folder_cannot_be_locked_again(tmp_path):
    with exclusive_lock(tmp_path / "made" / "here"):
        message = r"another process is using .*here. Wait for it"
        with pytest.raises(ThresherError, match=message), exclusive_lock(tmp_path / "made" / "here"):
            pass
        with exclusive_lock(tmp_path / "made"):  # the parent folder is independent
            pass
    with exclusive_lock(tmp_path / "made" / "here"):
        pass


def test_a_lock_stays_with_a_renamed_folder(tmp_path):
    """A new folder at the old path is not locked."""
    with exclusive_lock(tmp_path / "partial"):
        replace_folder(tmp_path / "partial", tmp_path / "place")
        with pytest.raises(ThresherError, match="is using"), exclusive_lock(tmp_path / "place"):
            pass
        with exclusive_lock(tmp_path / "partial"):
            assert (tmp_path / "partial").exists()


def test_the_lock_of_a_killed_process_is_released(tmp_path):
    code = "import sys, pathlib\nfrom thresher._internal.storage.files import exclusive_lock\n"
    code += f"with exclusive_lock(pathlib.Path({str(tmp_path)!r})):\n"
    code += "    print('in', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in\n"
        with pytest.raises(ThresherError, match="is using"), exclusive_lock(tmp_path):
            pass
        other.kill()
    with exclusive_lock(tmp_path):
        pass


def test_a_lock_is_released_although_a_forked_child_is_alive(tmp_path):
    with exclusive_lock(tmp_path):
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
    try:
        with exclusive_lock(tmp_path):
            assert os.waitpid(child, os.WNOHANG) == (0, 0)  # the child is alive
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_file_cannot_be_locked_as_a_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ThresherError, match="is a file, but a folder is needed"), exclusive_lock(tmp_path / "file"):
        pass
    assert (tmp_path / "file").read_text() == "mine"
