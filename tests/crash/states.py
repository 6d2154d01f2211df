"""Every state of a folder in which a crash could leave it, recorded during one run: before each file operation.

    killed      the files as they are: the process ends, the system goes on
    empty       files that were not synchronised are empty, as on ext4 after a power failure
    zeros       the same files have their length, and zeros as content
    ext4        what a real ext4 file system holds (`Disk`), where one can be mounted

Equal states are kept once.
"""

import hashlib
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from crash.disk import Disk
from crash.operations import Operations


@dataclass
class Recorder:
    """Copies the states of a folder to `states/<kind>/<number of the operation>`."""

    folder: Path
    states: Path
    disk: Disk | None = None
    seen: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    operations: Operations = field(init=False)
    synchronised: bool = True  # since the last state of the disk was recorded; nothing else changes it

    def start(self) -> None:
        """Record from here on; what the folder holds now is on disk."""
        self.operations = Operations(self.folder, self.record)
        self.operations.keep(self.folder)
        for kind in ("killed", "empty", "zeros", "ext4"):
            (self.states / kind).mkdir(parents=True, exist_ok=True)
        self.operations.start()

    def record(self, number: int, name: str) -> None:
        place = f"{number:05}-{name}"
        if self.disk is not None:
            synchronised, self.synchronised = self.synchronised, name == "fsync"
            if not synchronised:
                return
            self.disk.after_power_cut(self.states / "copy.img", self.states / "ext4" / place)
            self._keep("ext4", place)
            return
        killed = self.states / "killed" / place
        shutil.copytree(self.folder, killed)
        lost = self.operations.lost(self.folder)
        for kind in ("empty", "zeros") if lost else ():
            changed = self.states / kind / place
            shutil.copytree(killed, changed)
            for file in lost:
                content = bytes((changed / file).stat().st_size) if kind == "zeros" else b""
                (changed / file).write_bytes(content)
            self._keep(kind, place)
        self._keep("killed", place)

    def _keep(self, kind: str, place: str) -> None:
        """Remove the state just recorded if there is one like it."""
        self.counts[kind] += 1
        folder = self.states / kind / place
        if (digest := _digest(folder)) in self.seen:
            shutil.rmtree(folder)
        self.seen.add(digest)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        content = b"/" if path.is_dir() else path.read_bytes()
        digest.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
