"""GradientExchange: the gradients of processes that share a batch, added up before each optimizer step.

Gradients of networks and small tables are summed whole. Of a table with row-sparse gradients, only ids and rows of the
batch are sent. Every process then makes the same update, so that their models stay equal bit for bit.
"""

from collections import defaultdict

import torch
from torch import Tensor, nn

from thresher._internal.processes import Processes
from thresher.embeddings.base import RowGradients
from thresher.errors import ConfigError
from thresher.kernels.distinct import find_distinct, is_ascending
from thresher.kernels.rows import collect_rows, row_gradient

NO_GRADIENT, DENSE = -2.0, -1.0
"""In place of the number of rows of a sparse gradient."""


class GradientExchange:
    """Adds up the gradients of all processes; each must call it after every backward pass.

    Attributes:
        bytes_sent: what this process has sent so far.
        stop: the largest `stop` of all processes at the last step, so that all stop after the same one.
    """

    def __init__(self, model: nn.Module, processes: Processes) -> None:
        self.processes, self.bytes_sent, self.stop = processes, 0, 0
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._records: dict[nn.Parameter, list[RowGradients]] = defaultdict(list)
        for module in model.modules():
            if isinstance(module, RowGradients) and (table := module.recorded_table) is not None:
                self._records[table].append(module)

    @torch.no_grad()
    def __call__(self, loss: Tensor, stop: int = 0) -> Tensor:
        """Replace all gradients by their sums, and return the sum of the losses."""
        for parameter in self._parameters:
            _make_distinct_(parameter)
        if self._parameters and self._parameters[0].device.type != "cpu":
            loss = loss.cpu()
        own = [_kind(parameter.grad) for parameter in self._parameters]
        header = torch.tensor([*own, float(loss), float(stop)], dtype=torch.float64)
        every = self._share_gradients(header)  # [P, parameters + 2]
        kinds, self.stop = every[:, :-2].amax(0).tolist(), int(every[:, -1].max())
        dense: dict[torch.dtype, list[nn.Parameter]] = defaultdict(list)
        for number, (parameter, kind) in enumerate(zip(self._parameters, kinds, strict=True)):
            if kind >= 0:
                counts = every[:, number].clamp_min(0).long()
                if bool((every[:, number] == DENSE).any()):
                    raise ConfigError("a table has row-sparse gradients in one process and dense ones in another")
                self._sum_rows(parameter, counts.tolist())
            elif kind == DENSE:
                dense[parameter.dtype].append(parameter)
        for parameters in dense.values():
            self._sum_dense(parameters)
        return every[:, -2].sum().to(loss.dtype)

    def finish_step(self) -> None:
        """Call this after the optimizer's step."""

    def complete_states(self) -> None:
        """Call this in all processes before the optimizer's state is read: each may hold a part of it."""

    def _share_gradients(self, header: Tensor) -> Tensor:
        """The headers of all processes; a subclass may share more."""
        return self._gather(header)

    def _sum_dense(self, parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.grad is None:  # no row of the batch is this process's
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        self.bytes_sent += flat.numel() * flat.element_size()
        self.processes.sum_(flat)
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, total in zip(gradients, torch.split(flat, sizes), strict=True):
            gradient.copy_(total.view_as(gradient))

    def _sum_rows(self, parameter: nn.Parameter, counts: list[int]) -> None:
        ids, values = rows_of(parameter)
        pruned = next((found for one in self._records[parameter] if (found := one.known_pruned(ids)) is not None), None)
        sent = ids if pruned is None else torch.where(pruned, ~ids, ids)  # a negative number: this row is all 0
        size = max(counts)
        all_sent = self._gather(_padded(sent, size))
        all_values = self._gather(_padded(values, size))
        parts = [(all_sent[rank, :count], all_values[rank, :count]) for rank, count in enumerate(counts)]
        marked = torch.cat([part for part, _ in parts])
        distinct = find_distinct(torch.where(marked < 0, ~marked, marked), len(parameter))
        rows = collect_rows(torch.cat([part for _, part in parts]), distinct)  # [U, D], added in the order of ranks
        parameter.grad = row_gradient(parameter.shape, distinct.ids, rows)
        if records := self._records[parameter]:
            is_pruned = torch.zeros(distinct.num_ids, dtype=torch.bool, device=rows.device)
            is_pruned[distinct.places[marked < 0].long()] = True
            for one in records:
                one.expect_updates(distinct.ids, is_pruned)

    def _gather(self, values: Tensor) -> Tensor:
        self.bytes_sent += values.numel() * values.element_size()
        return self.processes.gather(values)


def _make_distinct_(parameter: nn.Parameter) -> None:
    """Add up the rows of an id that a row-sparse gradient holds more than once, as those of PyTorch's tables do."""
    gradient = parameter.grad
    if gradient is None or not gradient.is_sparse or gradient.is_coalesced():
        return
    if not is_ascending(gradient._indices()[0]):
        parameter.grad = gradient.coalesce()


def _kind(gradient: Tensor | None) -> float:
    if gradient is None:
        return NO_GRADIENT
    return float(gradient._nnz()) if gradient.is_sparse else DENSE


def rows_of(parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
    """Ids `[U]` and values `[U, …]` of its gradient."""
    gradient = parameter.grad
    if gradient is None:
        return torch.empty(0, dtype=torch.int64, device=parameter.device), parameter.new_empty(0, *parameter.shape[1:])
    return gradient._indices()[0], gradient._values()


def _padded(values: Tensor, size: int) -> Tensor:
    padded = values.new_zeros(size, *values.shape[1:])
    padded[: len(values)] = values
    return padded
