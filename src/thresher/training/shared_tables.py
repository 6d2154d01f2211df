"""SharedTables: tables with row updates in memory that the processes of one machine share.

Each process looks up its part of a batch, and updates its part of the table: a row is updated once, not once in every
process. Rows are added in the order of `GradientExchange`, and so are dense gradients of two processes: their results
are the same bit for bit. The state of the optimizer stays in each process, where it has huge pages, and holds the rows
that the process updates.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from thresher._internal.host_memory import HostMemory, bytes_of
from thresher._internal.mapped_tensors import copy_of, tables_are_mapped
from thresher._internal.processes import Processes
from thresher.embeddings.base import RowGradients, SharedRecords
from thresher.kernels.merged_rows import merge_rows
from thresher.kernels.rows import row_gradient
from thresher.kernels.score_histogram import SharedCounts
from thresher.training.gradient_exchange import DENSE, GradientExchange, rows_of
from thresher.training.row_adam import RowAdam


@contextmanager
def exchanged_gradients(
    model: nn.Module, optimizer: torch.optim.Optimizer, processes: Processes | None, *, share_tables: bool
) -> Iterator[GradientExchange | None]:
    """The exchange of a training; None for a single process.

    With `share_tables`, and if all processes are on one machine, they share the tables inside. Then nothing but the
    optimizer may write to the tables, and every process must call its `step` and `catch_up`.
    """
    if processes is None:
        yield None
        return
    shared = _shared_tables(model, optimizer, processes) if share_tables else None
    if shared is None:
        yield GradientExchange(model, processes)
        return
    try:
        yield shared
        shared.complete_states()
    except BaseException:
        shared.memory.leave()
        raise
    finally:
        shared.end_sharing()
        shared.memory.close()


def _shared_tables(model: nn.Module, optimizer: torch.optim.Optimizer, processes: Processes) -> "SharedTables | None":
    modules = [module for module in model.modules() if isinstance(module, RowGradients) and module.row_gradients]
    found = dict.fromkeys(table for module in modules for table in module.row_tables() if table.requires_grad)
    tables = [table for table in found if table.dtype == torch.float32]
    on_cpu = all(parameter.device.type == "cpu" for parameter in model.parameters())
    if not tables or not on_cpu or not isinstance(optimizer, RowAdam) or optimizer.max_grad_norm is not None:
        return None
    if tables_are_mapped():
        return None
    memory = HostMemory.of(processes, _bytes_needed(model, tables, processes.size))
    return None if memory is None else SharedTables(model, optimizer, processes, memory, tables)


def _bytes_needed(model: nn.Module, tables: list[nn.Parameter], num_processes: int) -> int:
    """For tables, records, and gradients of every process; memory is taken only for what is written."""
    total = bytes_of((num_processes, len(list(model.parameters())) + 2), torch.float64)
    for parameter in model.parameters():
        if parameter.requires_grad:
            total += bytes_of((num_processes, *parameter.shape), parameter.dtype)
        if any(parameter is table for table in tables):
            total += bytes_of((num_processes, len(parameter)), torch.int64)
            total += bytes_of(parameter.shape, parameter.dtype)
    records = sum(1 for module in model.modules() if isinstance(module, RowGradients))
    most_rows = max(len(table) for table in tables)
    return total + records * (bytes_of((most_rows,), torch.float32) + bytes_of((most_rows,), torch.int8))


class SharedTables(GradientExchange):
    """Shares tables from construction until `end_sharing`. `bytes_sent` counts what a process writes for the others."""

    def __init__(
        self, model: nn.Module, optimizer: RowAdam, processes: Processes, memory: HostMemory, tables: list[nn.Parameter]
    ) -> None:
        super().__init__(model, processes)
        self.memory, self._optimizer = memory, optimizer
        self._headers = memory.zeros(processes.size, len(self._parameters) + 2, dtype=torch.float64)
        self._gradients = {one: memory.zeros(processes.size, *one.shape, dtype=one.dtype) for one in self._parameters}
        self._ids = {table: memory.zeros(processes.size, len(table), dtype=torch.int64) for table in tables}
        self._bounds: dict[int, list[int]] = {}
        """Number of rows → where each process's rows begin: one process updates a row and its threshold."""
        for table in tables:
            shared = memory.zeros(*table.shape)
            if processes.is_first:
                shared.copy_(table.data)
            table.data = shared
            for module in self._records[table]:
                module.share_records(self._new_records(len(table)))
        optimizer.shared = self
        memory.wait()

    def end_sharing(self) -> None:
        """Every process gets tables of its own."""
        self._optimizer.shared = None
        for table in self._ids:
            table.data = copy_of(table.data)
            for module in self._records[table]:
                module.share_records(None)
        self._ids = {}

    def complete_states(self) -> None:
        for table in [table for table in self._ids if len(table) in self._bounds]:
            parts = [self._part(table, rank) for rank in range(self.processes.size)]
            for values in self._optimizer.state.get(table, {}).values():
                if isinstance(values, Tensor) and values.numel():
                    for rank, part in enumerate(parts):
                        if part.start < part.stop:
                            self.processes.copy_from_(rank, values[part])
        self._bounds = {}  # any process can update any row now

    def part_of(self, parameter: Tensor) -> slice:
        if parameter not in self._ids:
            return slice(0, len(parameter))
        size = self.processes.size
        self._bounds.setdefault(len(parameter), [len(parameter) * rank // size for rank in range(size + 1)])
        return self._part(parameter, self.processes.rank)

    def _part(self, table: Tensor, rank: int) -> slice:
        return slice(*self._bounds[len(table)][rank : rank + 2])

    def wait(self) -> None:
        self.memory.wait()

    def finish_step(self) -> None:
        self.memory.wait()  # until the tables are updated

    def _share_gradients(self, header: Tensor) -> Tensor:
        rank = self.processes.rank
        for number, parameter in enumerate(self._parameters):
            own, kind = self._gradients[parameter][rank], float(header[number])
            if parameter in self._ids and kind >= 0:
                ids, values = rows_of(parameter)
                self._ids[parameter][rank, : len(ids)] = ids
                own[: len(ids)] = values
                self.bytes_sent += ids.nbytes + values.nbytes
            elif kind == DENSE and parameter.grad is not None:
                own.copy_(parameter.grad)
                self.bytes_sent += own.nbytes
        self._headers[rank] = header
        self.bytes_sent += header.nbytes
        self.memory.wait()
        every = self._headers.clone()
        self._dense = dict(zip(self._parameters, (every[:, :-2] == DENSE).T.tolist(), strict=True))
        if any(any(self._dense[table]) for table in self._ids):
            self.complete_states()
            self.end_sharing()  # the model also reads a table as a whole
        return every

    def _sum_dense(self, parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            present = [
                one for one, dense in zip(self._gradients[parameter], self._dense[parameter], strict=True) if dense
            ]
            parameter.grad = sum(present[1:], start=present[0].clone())

    def _sum_rows(self, parameter: nn.Parameter, counts: list[int]) -> None:
        if parameter not in self._ids:
            super()._sum_rows(parameter, counts)
            return
        size = self.processes.size
        if len(parameter) not in self._bounds:  # equal parts of this batch's rows
            longest = self._ids[parameter][counts.index(max(counts)), : max(counts)]
            if len(longest):
                inner = [int(longest[len(longest) * rank // size]) for rank in range(1, size)]
                self._bounds[len(parameter)] = [0, *inner, len(parameter)]
        values = self._gradients[parameter].view(size, len(parameter), -1)
        ids, rows = merge_rows(self._ids[parameter], values, counts, self.part_of(parameter))
        parameter.grad = row_gradient(parameter.shape, ids, rows.view(-1, *parameter.shape[1:]))
        for one in self._records[parameter]:
            one.expect_updates(ids, torch.empty(0, dtype=torch.bool))

    def _new_records(self, num_rows: int) -> SharedRecords:
        rank, size = self.processes.rank, self.processes.size
        states = self.memory.zeros(num_rows, dtype=torch.int8).numpy()
        rows = slice(num_rows * rank // size, num_rows * (rank + 1) // size)
        return SharedRecords(SharedCounts(states, rows, self.processes.total), self.memory.zeros(num_rows))
