"""HostMemory: memory that the processes of one machine share, and a barrier between them (Linux on x86).

The memory has no name in any folder, so nothing is left behind, however the processes end.
"""

import mmap
import os
import platform
import secrets
import select
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from thresher._internal.processes import Processes, process_lost

_PAGE = 4096
_SLOT = 8  # numbers between two processes' counters: each is on a cache line of its own
_SPINS = 300
_SECONDS_BETWEEN_LOOKS = 5e-5


class HostMemory:
    """Zeros that all processes read and write. Every process must make the same calls in the same order."""

    def __init__(self, processes: Processes, memory: mmap.mmap, files: list[int]) -> None:
        self.processes, self._memory, self._used, self._files = processes, memory, 0, files
        self._ends = select.poll()
        for file in self._files:
            self._ends.register(file, select.POLLIN)
        self._turns = self.zeros(processes.size, _SLOT, dtype=torch.int64).numpy()[:, 0]
        self._left = self.zeros(processes.size, dtype=torch.bool).numpy()
        self._turn = 0

    @classmethod
    def of(cls, processes: Processes, num_bytes: int) -> Self | None:
        """Memory for tensors of `num_bytes`, of which only used pages are taken; None if there are several machines."""
        num_bytes += _PAGE * 4
        own, token = -1, secrets.token_bytes(16)
        if processes.is_first and _is_supported():
            with suppress(OSError):
                own = os.memfd_create("thresher")
                os.ftruncate(own, num_bytes)
                os.pwrite(own, token, num_bytes - _PAGE)
        every = processes.gather_objects((os.getpid(), own, num_bytes, token, socket.gethostname()))
        pid, file, size, token, host = every[0]
        memory, files = None, list[int]()
        if _is_supported() and file >= 0 and host == socket.gethostname():
            with suppress(OSError):
                memory = _mapped(f"/proc/{pid}/fd/{file}", size, token)
                for rank, one in enumerate(every):
                    if rank != processes.rank:
                        files.append(os.pidfd_open(one[0]))
        failed = processes.any(len(files) < processes.size - 1)
        if own >= 0:
            os.close(own)
        if failed or memory is None:
            for opened in files:
                os.close(opened)
            return None
        return cls(processes, memory, files)

    def zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """The next part of the memory; `bytes_of` is what it takes."""
        count = torch.Size(shape).numel()
        if not count:
            return torch.zeros(shape, dtype=dtype)
        start, self._used = self._used, self._used + bytes_of(shape, dtype)
        return torch.frombuffer(self._memory, dtype=dtype, count=count, offset=start).view(shape)

    def wait(self) -> None:
        """Wait until all processes are here, and raise if one of them has ended."""
        self._turn += 1
        self._turns[self.processes.rank] = self._turn
        looks = 0
        while self._turns.min() < self._turn:
            looks += 1
            if looks < _SPINS:
                os.sched_yield()
                continue
            time.sleep(_SECONDS_BETWEEN_LOOKS)
            if (self._left.any() or self._ends.poll(0)) and self._turns.min() < self._turn:
                raise process_lost()

    def leave(self) -> None:
        """Let the others raise where they would wait for this process, which has failed."""
        self._left[self.processes.rank] = True

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())


def bytes_of(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """What a tensor takes of a `HostMemory`: whole pages."""
    return -(-torch.Size(shape).numel() * dtype.itemsize // _PAGE) * _PAGE


def _is_supported() -> bool:
    """Stores must reach other processes in their order, which x86 promises."""
    # a Python that was built for an old glibc, as those of conda and uv may be, has no memfd_create
    has_functions = hasattr(os, "memfd_create") and hasattr(os, "pidfd_open")
    return has_functions and sys.platform == "linux" and platform.machine() == "x86_64"


def _mapped(path: str, num_bytes: int, token: bytes) -> mmap.mmap:
    """The memory of another process; raises if it cannot be opened, or belongs to a process of another machine."""
    with Path(path).open("r+b", buffering=0) as file:
        if os.fstat(file.fileno()).st_size != num_bytes:  # mmap would raise a ValueError
            raise OSError("another machine")
        memory = mmap.mmap(file.fileno(), num_bytes)
    if memory[num_bytes - _PAGE : num_bytes - _PAGE + len(token)] != token:
        raise OSError("another machine")
    with suppress(OSError):  # a hint, which systems without huge pages refuse
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
