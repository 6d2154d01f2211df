"""Folders in the temporary directory: removed at the end, or by the next process if theirs was killed."""

import os
import subprocess
import sys
import tempfile

import pytest

from thresher._internal.storage.files import private_folder


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_folder_is_private_and_removed(tmp_path):
    with private_folder("test") as folder:
        assert folder.parent == tmp_path
        assert folder.stat().st_mode & 0o077 == 0
        with private_folder("test") as second:
            assert second != folder
        assert folder.exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name != "posix", reason="other processes cannot be asked")
def test_folders_of_killed_processes_are_removed_and_no_others(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, others = tmp_path / f"thresher-test-{ended.pid}-abc", [
        tmp_path / f"thresher-test-{os.getppid()}-abc", tmp_path / f"thresher-other-{ended.pid}-abc",
        tmp_path / f"thresher-test-{ended.pid}-abc.kept",
    ]  # fmt: skip
    for folder in (left, *others):
        folder.mkdir()
        (folder / "file").write_text("content")
    (tmp_path / f"thresher-test-{ended.pid}-link").symlink_to(others[0])
    with private_folder("test"):
        assert not left.exists()
    assert all((folder / "file").exists() for folder in others)
