"""Folders in the system's temporary directory; those of killed processes are removed by the next process.

A folder is named after its process and locked while it is used, so that no folder in use is removed.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from thresher._internal.storage.files import exclusive_lock, is_other_running_process
from thresher.errors import ThresherError


@contextmanager
def private_folder(purpose: str) -> Iterator[Path]:
    """A new folder that only this user can read; it is removed at the end."""
    _remove_left(purpose)
    with tempfile.TemporaryDirectory(prefix=f"thresher-{purpose}-{os.getpid()}-") as name, exclusive_lock(Path(name)):
        yield Path(name)


def _remove_left(purpose: str) -> None:
    if os.name != "posix":
        return
    pattern = re.compile(rf"thresher-{purpose}-(?P<pid>\d+)-\w+")
    for folder in Path(tempfile.gettempdir()).glob(f"thresher-{purpose}-*"):
        match = pattern.fullmatch(folder.name)
        if match is None or int(match["pid"]) == os.getpid() or is_other_running_process(int(match["pid"])):
            continue
        with suppress(ThresherError, OSError):
            if not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                with exclusive_lock(folder):
                    shutil.rmtree(folder)
