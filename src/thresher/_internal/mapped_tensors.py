"""Memory for large tables (huge pages where the system has them, or a memory-mapped file), and the tensors of a model.

The rows of a batch are far apart, and with small pages the page lookup costs as much as reading a row. A mapped table
may be larger than the memory: the system keeps the rows in use and writes the others to disk.
"""

import mmap
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

import torch
from torch import Tensor, nn

from thresher._internal.storage.documents import check_regular, damaged_file
from thresher.errors import ThresherError, WriteError

LARGE_BYTES = 4 << 20
CHUNK_ENTRIES = 1 << 20  # entries processed at a time where a temporary of the table's size would be too large

_mapped: ContextVar[tuple[Path, int] | None] = ContextVar("mapped_tables", default=None)
"""The folder of mapped tables, and the bytes over which a table is mapped."""


@contextmanager
def mapped_tables(folder: Path, over_bytes: int) -> Iterator[None]:
    """Tables and optimizer states over `over_bytes` that are created inside are mapped files, removed when freed.

    A search with one threshold per entry needs disk space for 7 tables of `N · D` float32, and one byte per entry for
    the mask of each ticket.
    """
    token = _mapped.set((folder, over_bytes))
    try:
        yield
    finally:
        _mapped.reset(token)


def tables_are_mapped() -> bool:
    """Whether large tables that are created now are mapped files."""
    return _mapped.get() is not None


def new_zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A table of zeros on the default device; on the CPU, large tables use memory only for pages that are written."""
    num_bytes = torch.Size(shape).numel() * dtype.itemsize
    mapped, on_cpu = _mapped.get(), torch.get_default_device().type == "cpu"
    if mapped is not None and on_cpu and num_bytes > mapped[1]:
        return _in_file(mapped[0], torch.Size(shape), dtype)
    if on_cpu and num_bytes >= LARGE_BYTES and sys.platform.startswith("linux"):
        return _in_huge_pages(torch.Size(shape), dtype)
    return torch.zeros(shape, dtype=dtype)


def copy_of(values: Tensor) -> Tensor:
    """A detached copy, allocated like `new_zeros`; parts of a large table that are all 0 need no memory."""
    if values.dim() == 0 or values.device.type != "cpu" or values.numel() * values.element_size() < LARGE_BYTES:
        return values.detach().clone()
    copied = new_zeros(*values.shape, dtype=values.dtype)
    num_rows = max(1, CHUNK_ENTRIES * len(values) // values.numel())
    for target, source in zip(torch.split(copied, num_rows), torch.split(values.detach(), num_rows), strict=True):
        if source.any():
            target.copy_(source)
    return copied


@torch.no_grad()
def copy_into_(targets: Mapping[str, Tensor], sources: Mapping[str, Tensor]) -> None:
    for name, target in targets.items():
        target.copy_(sources[name])


def tensor_state(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model's `state_dict`, without other objects from `get_extra_state`."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def load_tensor_state_(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a state of `tensor_state`; extra state of the model does not change."""
    same_names = state.keys() == tensor_state(model).keys()
    model.load_state_dict(dict(state), strict=not same_names)  # strict: torch lists the wrong names


def load_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Floating-point values must be finite."""
    from safetensors.torch import load_file

    check_regular(path)
    with damaged_file(str(path), "Copy or create it again."):
        tensors: dict[str, Tensor] = load_file(path)
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not _all_finite(tensor):
                raise ValueError(f"{name!r} has values that are NaN or infinite")
    return tensors


def _all_finite(tensor: Tensor) -> bool:
    return all(bool(part.isfinite().all()) for part in torch.split(tensor.reshape(-1), CHUNK_ENTRIES))


def _in_file(folder: Path, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix="table-", delete=False) as file:
        path = Path(file.name)
        try:
            # without reserved space, a write to the map on a full disk would end the process
            if hasattr(os, "posix_fallocate") and shape.numel():
                os.posix_fallocate(file.fileno(), 0, shape.numel() * dtype.itemsize)
        except OSError as error:
            path.unlink()
            raise WriteError(
                f"cannot reserve {shape.numel() * dtype.itemsize:,} bytes in {folder}: {error.strerror}. Free disk "
                "space or choose another folder."
            ) from error
    try:
        return torch.from_file(str(path), shared=True, size=shape.numel(), dtype=dtype).view(shape)
    finally:
        path.unlink()  # the map keeps the content, and a killed process leaves no file


def _in_huge_pages(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Zeros in fresh pages of the system; torch.zeros would write every page, as small pages."""
    num_bytes = shape.numel() * dtype.itemsize
    try:
        memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise ThresherError(
            f"not enough memory for a table of {num_bytes:,} bytes ({error.strerror}). Use a smaller embedding_dim, or "
            "set map_tables_over_mb to keep large tables in files."
        ) from None
    with suppress(OSError):  # a hint, which systems without huge pages refuse
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def is_traced() -> bool:
    """Whether a graph is traced, or a function is transformed (vmap, grad, …): tensors are then wrappers."""
    return torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None
