"""A small ext4 file system in an image file. A copy of the image is what a power failure would leave at that moment.

The kernel keeps written data in memory until it is synchronised, so the image holds only what has reached the disk; a
mount of the copy replays the journal, as after a restart. Needs root and loop devices.
"""

import os
import shutil
import subprocess
from pathlib import Path

MEGABYTES = 24
OPTIONS = "loop,commit=300"  # the journal is written when files are synchronised, not every five seconds


class Disk:
    """An image, mounted at a folder."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.image, self.folder = image, folder

    @classmethod
    def available(cls) -> bool:
        return hasattr(os, "geteuid") and os.geteuid() == 0 and Path("/dev/loop-control").exists() and all(
            shutil.which(tool) for tool in ("mkfs.ext4", "mount", "umount")
        )  # fmt: skip

    def create(self) -> None:
        with self.image.open("wb") as file:
            file.truncate(MEGABYTES << 20)
        subprocess.run(["mkfs.ext4", "-q", "-b", "4096", "-I", "256", "-E", "lazy_itable_init=0", str(self.image)],
                       check=True, capture_output=True)  # fmt: skip

    def mount(self) -> None:
        self.folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "ext4", "-o", OPTIONS, str(self.image), str(self.folder)],
                       check=True, capture_output=True)  # fmt: skip
        lost = self.folder / "lost+found"
        if lost.exists():
            lost.rmdir()

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.folder)], check=True, capture_output=True)

    def after_power_cut(self, copy: Path, folder: Path) -> None:
        """Fill a folder with what a restart would find if the power failed now."""
        subprocess.run(["cp", "--sparse=always", str(self.image), str(copy)], check=True)
        restarted = Disk(copy, copy.with_suffix(".mounted"))
        restarted.mount()
        try:
            shutil.copytree(restarted.folder, folder)
        finally:
            restarted.unmount()
            copy.unlink()
