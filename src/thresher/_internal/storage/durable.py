"""Writes that survive a power failure: data reaches the disk before the rename that makes it visible.

A rename can become durable before the data of the renamed file, which then is empty or full of zeros. So files and
folders are synchronised first, innermost first, then renamed, and then the parent folder is synchronised.
"""

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_AT_FDCWD = -100


def sync_file(path: Path) -> None:
    """Wait until the content of a file is on disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk. Does nothing where folders cannot be synchronised."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems refuse
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """Wait until everything below a folder is on disk, and the folder itself."""
    for place, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(place) / name
            if path.is_file() and not path.is_symlink():
                sync_file(path)
        sync_folder(Path(place))


def make_folders(folder: Path) -> None:
    """Create a folder and its parents; the names of new folders are on disk afterwards."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        sync_folder(new.parent)


def exchange(first: Path, second: Path) -> bool:
    """Exchange two paths atomically; False where the system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _EXCHANGE) == 0)
