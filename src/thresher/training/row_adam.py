"""RowAdam: Adam that updates only the rows in a row-sparse gradient (docs/row_updates.md).

Parameters with a row-sparse COO gradient get the row update, all others torch's own (fused) Adam, so one optimizer
serves a whole model.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol, overload

import torch
from torch import Tensor
from torch.optim.adam import adam

from thresher._internal.mapped_tensors import new_zeros
from thresher.errors import ConfigError, NonFiniteError
from thresher.kernels.distinct import is_ascending
from thresher.kernels.row_adam_step import RowAdamSettings, RowAdamState, catch_up_rows_, row_adam_step_

CATCH_UP_ENTRIES = 1 << 17
"""Entries that are caught up at a time: few enough for the temporaries to stay in the cache."""


class SharedRows(Protocol):
    """Tables and states in memory that several processes share."""

    def part_of(self, parameter: Tensor) -> slice:
        """The rows that this process catches up."""

    def wait(self) -> None:
        """Wait until all processes are here."""


class RowAdam(torch.optim.Optimizer):
    """Adam with coupled weight decay that updates only the rows of a row-sparse gradient.

    At its next update an absent row is moved to where dense Adam would have it, except for weight decay, which is
    applied at once and up to a limit.

    Args:
        betas: decay of the moments; with a first one of 0 (no momentum) no first moments are stored.
        weight_decay: coupled (added to the gradient). A row absent for `n` steps gets that of `n` when it is back.
        max_decay_steps: maximum number of these steps; more would dominate the gradient of the loss on rare rows.
        second_moment: one per entry, or one per row (the mean over its entries), which saves the memory of a table.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        max_decay_steps: int = 100,
        second_moment: Literal["entry", "row"] = "entry",
        max_grad_norm: float | None = None,
    ) -> None:
        self.max_grad_norm = max_grad_norm
        defaults = {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "max_decay_steps": max_decay_steps,
            "second_moment": second_moment,
        }  # fmt: skip
        super().__init__(params, defaults)
        self.shared: SharedRows | None = None
        for group in self.param_groups:
            _check(group)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient, except for rows whose gradient is not finite: they raise."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        scale = self._gradient_scale()
        for group in self.param_groups:
            dense = []
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if parameter.grad.is_sparse or "touched_at" in self.state[parameter]:
                    self._step_rows(parameter, group, scale)
                else:
                    dense.append(parameter)
            if dense:
                self._step_dense(dense, group, scale)
        return loss

    def _step_rows(self, parameter: Tensor, group: dict[str, Any], scale: float) -> None:
        assert parameter.grad is not None
        if parameter.grad.is_sparse:
            rows, gradient = _distinct_rows(parameter.grad)
        else:  # a model that also reads its table: every row has a gradient in this step
            rows, gradient = torch.arange(parameter.shape[0], device=parameter.device), parameter.grad
        state = self._row_state(parameter, group)
        state["step"] += 1
        table, values = _by_rows(parameter), gradient.reshape(rows.numel(), -1)
        num_bad = row_adam_step_(table, rows, values, _row_adam_state(state), state["step"], _settings(group, scale))
        if num_bad:
            where = f"the gradient of {num_bad} rows of a table {list(parameter.shape)} is NaN or infinite"
            raise NonFiniteError(f"{where}. Lower the learning rate, set max_grad_norm, or check the dense inputs")

    def _row_state(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if state and "touched_at" not in state:  # so far all gradients were dense: every row was updated in each step
            state["step"] = int(state["step"])
            state["touched_at"] = _zeros(parameter, (parameter.shape[0], 1), torch.int32).add_(state["step"])
            if group["second_moment"] == "row":
                state["exp_avg_sq"] = _by_rows(state["exp_avg_sq"]).mean(1, keepdim=True)
            if not group["betas"][0]:
                state["exp_avg"] = _zeros(parameter, (parameter.shape[0], 0), parameter.dtype)
        if not state:
            num_rows, state["step"] = parameter.shape[0], 0
            second_shape = parameter.shape if group["second_moment"] == "entry" else (num_rows, 1)
            first_shape = parameter.shape if group["betas"][0] else (num_rows, 0)
            state["exp_avg"] = _zeros(parameter, first_shape, parameter.dtype)
            state["exp_avg_sq"] = _zeros(parameter, second_shape, parameter.dtype)
            state["touched_at"] = _zeros(parameter, (num_rows, 1), torch.int32)
        return state

    def _step_dense(self, parameters: list[Tensor], group: dict[str, Any], scale: float) -> None:
        """Torch's own Adam, fused where it can be."""
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        if scale != 1.0:
            torch._foreach_mul_(gradients, scale)
        by_kind: dict[Any, list[int]] = defaultdict(list)
        for index, parameter in enumerate(parameters):
            by_kind[parameter.device, parameter.dtype].append(index)
        for (device, dtype), indices in by_kind.items():
            states = [self.state[parameters[index]] for index in indices]
            adam(
                [parameters[index] for index in indices],
                [gradients[index] for index in indices],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                fused=device.type in ("cpu", "cuda") and dtype.is_floating_point,
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )

    def _gradient_scale(self) -> float:
        if self.max_grad_norm is None:
            return 1.0
        norms = [
            torch.linalg.vector_norm(_distinct_rows(parameter.grad)[1] if parameter.grad.is_sparse else parameter.grad)
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        norm = float(torch.linalg.vector_norm(torch.stack(norms))) if norms else 0.0
        # a norm that is not finite scales nothing: the update itself then raises an error that names the table
        return min(1.0, self.max_grad_norm / (norm + 1e-6)) if math.isfinite(norm) else 1.0

    @torch.no_grad()
    def catch_up(self) -> None:
        """Apply all deferred momentum and weight decay. Call this before whole tables are read, e.g. to evaluate."""
        if self.shared is not None:
            self.shared.wait()
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state.get(parameter, {})
                if "touched_at" not in state:
                    continue
                part = slice(0, None) if self.shared is None else self.shared.part_of(parameter)
                touched_at, step = state["touched_at"].squeeze(1)[part], state["step"]
                due = ((touched_at > 0) & (touched_at < step)).nonzero().squeeze(1) + part.start
                table = _by_rows(parameter)
                for rows in torch.split(due, max(1, CATCH_UP_ENTRIES // table.shape[1])):
                    catch_up_rows_(table, rows, _row_adam_state(state), step, _settings(group, 1.0))
        if self.shared is not None:
            self.shared.wait()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Like torch's, but integer state stays integer (torch casts all state to the parameter's type)."""
        super().load_state_dict(state_dict)
        ids = [index for group in state_dict["param_groups"] for index in group["params"]]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in zip(ids, parameters, strict=True):
            stored = state_dict["state"].get(index, {})
            if "touched_at" in stored:
                self.state[parameter]["touched_at"] = stored["touched_at"].to(parameter.device, copy=True)


def _distinct_rows(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Ids `[U]` and values `[U, …]` of a row-sparse gradient, each id once."""
    if gradient.sparse_dim() != 1:
        raise ConfigError(f"RowAdam needs gradients sparse by rows, not in {gradient.sparse_dim()} dimensions")
    ids = gradient._indices()[0]
    # autograd and F.embedding(sparse=True) do not mark a gradient as coalesced even if its ids ascend
    if not gradient.is_coalesced() and not is_ascending(ids):
        gradient = gradient.coalesce()
    return gradient._indices()[0].contiguous(), gradient._values().contiguous()


def _zeros(like: Tensor, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    if like.device.type == "cpu":
        return new_zeros(*shape, dtype=dtype)
    return torch.zeros(*shape, dtype=dtype, device=like.device)


def _row_adam_state(state: dict[str, Any]) -> RowAdamState:
    return RowAdamState(_by_rows(state["exp_avg"]), _by_rows(state["exp_avg_sq"]), state["touched_at"])


def _by_rows(tensor: Tensor) -> Tensor:
    """A table of any shape `[N, …]` as `[N, D]`, the same memory."""
    return tensor.detach().flatten(1) if tensor.dim() > 1 else tensor.detach().unsqueeze(1)


def _settings(group: dict[str, Any], scale: float) -> RowAdamSettings:
    return RowAdamSettings(
        learning_rate=float(group["lr"]),
        betas=tuple(group["betas"]),
        epsilon=group["eps"],
        weight_decay=group["weight_decay"],
        max_decay_steps=group["max_decay_steps"],
        gradient_scale=scale,
    )


def _check(group: dict[str, Any]) -> None:
    for name in ("lr", "eps", "weight_decay"):
        if not 0 <= group[name] < math.inf:
            raise ConfigError(f"{name} is {group[name]}; it must be 0 or more, and finite")
    if not all(0 <= beta < 1 for beta in group["betas"]):
        raise ConfigError(f"betas are {group['betas']}; each must be at least 0 and below 1")
    if group["max_decay_steps"] < 1:
        raise ConfigError(f"max_decay_steps is {group['max_decay_steps']}; it must be at least 1")
