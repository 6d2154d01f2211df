"""File operations of this process: a callback before each of them, and what has reached the disk by then.

Python reports operations as audit events. `fsync` and the exchange of two folders have none, so they are wrapped.
Content is on disk once its file was synchronised; a rename may reach the disk at any time.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from thresher._internal.storage import files

CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Operations:
    """Counts operations below a folder and calls `before(number, name)`; `durable` is the content by inode."""

    def __init__(self, folder: Path, before: Callable[[int, str], None]) -> None:
        self.folder, self.before, self.number = str(folder), before, 0
        self.durable: dict[int, bytes] = {}
        self._inside = False

    def start(self) -> None:
        """From here on until the process ends."""
        sync, exchange = os.fsync, files.exchange

        def synchronised(descriptor: int) -> None:
            self._report("fsync")
            sync(descriptor)
            self._remember(descriptor)

        def exchanged(first: Path, second: Path) -> bool:
            self._report("exchange")
            return exchange(first, second)

        os.fsync = synchronised
        files.exchange = exchanged
        sys.addaudithook(self._audit)

    def keep(self, path: Path) -> None:
        """Count the present content of everything below a path as durable."""
        for file in path.rglob("*"):
            if file.is_file():
                self.durable[file.stat().st_ino] = file.read_bytes()

    def lost(self, folder: Path) -> list[str]:
        """Files whose content is not on disk, relative to the folder."""
        return [
            file.relative_to(folder).as_posix()
            for file in sorted(folder.rglob("*"))
            if file.is_file() and self.durable.get(file.stat().st_ino) != file.read_bytes()
        ]

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str) and isinstance(flags, int) and flags & WRITES and path.startswith(self.folder):
                self._report("open")
        elif event in CHANGES:
            path = os.fspath(arguments[0]) if not isinstance(arguments[0], int) else ""
            if isinstance(path, bytes):
                path = os.fsdecode(path)
            if path.startswith(self.folder) or not path.startswith("/"):  # rmtree names paths in open folders
                self._report(event)

    def _report(self, name: str) -> None:
        if self._inside:
            return
        self._inside = True
        try:
            self.before(self.number, name)
            self.number += 1
        finally:
            self._inside = False

    def _remember(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_file():
            self.durable[found.st_ino] = path.read_bytes()
