"""Memory for large tables: in huge pages where the system has them, or in a file when they would not fit.

Rows of a batch lie far apart, and with small pages finding a row's page costs as much as reading it. A mapped table
may be larger than the memory: the system keeps the rows in use and writes the others out.
"""

import mmap
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from thresher.errors import ThresherError

LARGE_BYTES = 4 << 20
CHUNK_ENTRIES = 1 << 20
"""Entries of a table that are processed at a time where a temporary of its whole size would be too large."""


@dataclass(frozen=True, kw_only=True)
class MappedTables:
    """Tables of more than `over_bytes` live in files in `folder`, which vanish with the last use of the table."""

    folder: Path
    over_bytes: int


_mapped: ContextVar[MappedTables | None] = ContextVar("mapped_tables", default=None)


@contextmanager
def mapped_tables(folder: Path, over_bytes: int) -> Iterator[None]:
    """Tables and optimizer states made inside are memory maps where they are larger than `over_bytes`.

    The disk must hold them all: 6 tables of `N · D` float32, and the initial one, for a search with a threshold each,
    and a byte an entry for each ticket's mask.
    """
    token = _mapped.set(MappedTables(folder=folder, over_bytes=over_bytes))
    try:
        yield
    finally:
        _mapped.reset(token)


def new_zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A table of zeros on the CPU; no page of it is touched before it is used."""
    num_bytes = torch.Size(shape).numel() * dtype.itemsize
    mapped, on_cpu = _mapped.get(), torch.get_default_device().type == "cpu"
    if mapped is not None and on_cpu and num_bytes > mapped.over_bytes:
        return _in_file(mapped.folder, torch.Size(shape), dtype)
    if on_cpu and num_bytes >= LARGE_BYTES and sys.platform.startswith("linux"):
        return _in_huge_pages(torch.Size(shape), dtype)
    return torch.zeros(shape, dtype=dtype)


def copy_of(values: Tensor) -> Tensor:
    """A copy kept the way a new table of its size would be."""
    if values.device.type != "cpu" or values.numel() * values.element_size() < LARGE_BYTES:
        return values.detach().clone()
    return new_zeros(*values.shape, dtype=values.dtype).copy_(values.detach())


@torch.no_grad()
def copy_into_(targets: Mapping[str, Tensor], sources: Mapping[str, Tensor]) -> None:
    """Write every source into the target of its name, one after the other; the memory of the targets stays theirs."""
    for name, target in targets.items():
        target.copy_(sources[name])


def _in_file(folder: Path, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="table-", delete=False) as file:
        path = Path(file.name)
    try:
        return torch.from_file(str(path), shared=True, size=shape.numel(), dtype=dtype).view(shape)
    finally:
        path.unlink()  # the map keeps the content alive, and nothing is left behind by a killed process


def _in_huge_pages(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Fresh pages of the system's, zero until they are written; torch's own zeros touch every page, as small ones."""
    num_bytes = shape.numel() * dtype.itemsize
    try:
        memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise ThresherError(
            f"there is no memory for a table of {num_bytes:,} bytes ({error.strerror}); make it narrower, or keep "
            "large tables in files with map_tables_over_mb"
        ) from None
    with suppress(OSError):  # only advice: a system without huge pages refuses it, and nothing else changes
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
