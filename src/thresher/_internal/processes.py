"""Processes: the processes of torch.distributed that train one model together, and what they agree on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from thresher.errors import AttachError, ProcessLostError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

RELATIVE_TOLERANCE = 1e-5
"""Replicas are equal bit for bit on equal machines; other machines may round differently."""


@dataclass(frozen=True)
class Processes:
    """A group of processes that hold equal copies of a model. Every method but `rank` must be called by all of them."""

    group: "ProcessGroup"
    rank: int
    size: int

    @classmethod
    def of(cls, group: "ProcessGroup | None" = None) -> "Processes | None":
        """A group, by default all processes of torch.distributed; None for a single process."""
        import torch.distributed as distributed

        if not distributed.is_available() or not distributed.is_initialized():
            return None
        found = distributed.group.WORLD if group is None else group
        assert found is not None
        size = distributed.get_world_size(found)
        return cls(found, distributed.get_rank(found), size) if size > 1 else None

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and shows the progress."""
        return self.rank == 0

    def sum_(self, values: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        import torch.distributed as distributed

        with _lost_processes():
            distributed.all_reduce(values, group=self.group)
        return values

    def total(self, values: Tensor) -> Tensor:
        """The sum of values on the CPU over all processes, on the CPU."""
        return self.sum_(values.to(self._transport(values.device), copy=True)).cpu()

    def unite_(self, flags: Tensor) -> Tensor:
        """Flags (bool) that are set in any process, in place."""
        import torch.distributed as distributed

        numbers = flags.to(self._transport(flags.device), torch.uint8)
        with _lost_processes():
            distributed.all_reduce(numbers, distributed.ReduceOp.MAX, group=self.group)
        return flags.copy_(numbers)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set in any process."""
        return bool(self.unite_(torch.tensor([flag])))

    def min_(self, values: Tensor) -> Tensor:
        """The smallest value of all processes, in place."""
        import torch.distributed as distributed

        with _lost_processes():
            distributed.all_reduce(values, distributed.ReduceOp.MIN, group=self.group)
        return values

    def copy_from_first_(self, values: Tensor) -> Tensor:
        """The first process's values, in place."""
        return self.copy_from_(0, values)

    def copy_from_(self, rank: int, values: Tensor) -> Tensor:
        """The values of one process, in place."""
        import torch.distributed as distributed

        with _lost_processes():
            distributed.broadcast(values, distributed.get_global_rank(self.group, rank), group=self.group)
        return values

    def gather(self, values: Tensor) -> Tensor:
        """The values of all processes, which must have equal shapes, `[size, …]`."""
        import torch.distributed as distributed

        found = values.new_empty(self.size, *values.shape)
        with _lost_processes():
            distributed.all_gather(list(found.unbind(0)), values.contiguous(), group=self.group)
        return found

    def gather_objects(self, value: Any) -> list[Any]:
        """The small objects of all processes, in their order."""
        import torch.distributed as distributed

        found: list[Any] = [None] * self.size
        with _lost_processes():
            distributed.all_gather_object(found, value, group=self.group)
        return found

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.unite_(torch.zeros(1, dtype=torch.bool))

    def differing(self, tensors: Sequence[Tensor]) -> list[int]:
        """The numbers of the tensors whose values differ between the processes; compared by sums."""
        sums = [(value.detach().double().sum(), value.detach().double().abs().sum()) for value in tensors]
        own = torch.tensor([[float(total) for total in pair] for pair in sums], dtype=torch.float64)
        every = self.gather(own.to(self._transport(own.device))).cpu()
        scale = every[..., 1:].amax(0).clamp_min(1e-30)  # [tensors, 1]
        differs = ((every - every[:1]).abs() > RELATIVE_TOLERANCE * scale).flatten(2).any(2).any(0)
        return [int(number) for number in differs.nonzero()]

    def _transport(self, device: torch.device) -> torch.device:
        """Where tensors must be to be sent: NCCL sends those of a GPU only."""
        import torch.distributed as distributed

        on_gpu = distributed.get_backend(self.group) == "nccl"
        return torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")


_current: ContextVar[Processes | None] = ContextVar("processes", default=None)


def current_processes() -> Processes | None:
    """The processes that train together in Thresher's own training loop; None for a single one."""
    return _current.get()


@contextmanager
def training_together(processes: Processes | None) -> Iterator[None]:
    """Inside, Thresher's training loop shares each batch among these processes."""
    token = _current.set(processes)
    try:
        yield
    finally:
        _current.reset(token)


def writes_files() -> bool:
    """Whether this process writes the files of a run."""
    processes = _current.get()
    return processes is None or processes.is_first


def agreed(decision: bool) -> bool:
    """The first process's decision, such as whether a file exists; it alone writes files."""
    processes = _current.get()
    return decision if processes is None else processes.any(decision and processes.is_first)


def wait_for_files() -> None:
    """Call this after the first process may have written files that the others read."""
    if (processes := _current.get()) is not None:
        processes.wait()


@contextmanager
def _lost_processes() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise process_lost(f" or cannot be reached ({str(error).splitlines()[0]})") from error


def process_lost(reason: str = "") -> ProcessLostError:
    return ProcessLostError(
        f"another process of this training ended{reason}. Look for its error message, then resume the run with the "
        "same number of processes"
    )


class OwnState(nn.Module):
    """Mixin: the tensor `seen` is in the `state_dict` and moves with the module, but is not a buffer.

    DistributedDataParallel copies the buffers of the first process over those of all others at every forward pass. The
    rows that a process has seen are its own until the search unites them.
    """

    seen: Tensor

    def unite_seen(self, processes: Processes) -> None:
        """Mark the rows that any of the processes has seen."""
        processes.unite_(self.seen)

    @contextmanager
    def _seen_as_buffer(self) -> Iterator[None]:
        self._buffers["seen"] = vars(self).pop("seen")
        try:
            yield
        finally:
            vars(self)["seen"] = self._buffers.pop("seen")

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        with self._seen_as_buffer():
            return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def _save_to_state_dict(self, *args: Any, **kwargs: Any) -> None:
        with self._seen_as_buffer():
            super()._save_to_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        with self._seen_as_buffer():
            super()._load_from_state_dict(*args, **kwargs)


def check_whole(name: str, weight: Tensor) -> None:
    """Raise if a table is sharded over processes (FSDP, tensor parallelism): each must have it whole."""
    if type(weight).__name__ == "DTensor":
        raise AttachError(
            f"table {name!r} is sharded over processes (fully_shard). A search needs the whole table in every process. "
            "Leave embedding tables out of fully_shard (ignored_params), or train with DistributedDataParallel"
        )
