"""Measurements of a search: density by feature frequency, and the components of thresholds."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from thresher.embeddings.pep import PepEmbedding

GROUP_EDGES = (1, 10, 100, 1_000, 10_000)
"""Frequency groups are decades of the training count; MovieLens-1M has five."""


def group_names() -> list[str]:
    closed = [f"{low:,}–{high - 1:,}" for low, high in pairwise(GROUP_EDGES)]
    return [*closed, f"{GROUP_EDGES[-1]:,}+"]


def frequency_groups(feature_counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the frequency group of each feature `[N]`; −1 if it does not occur in training."""
    return np.searchsorted(GROUP_EDGES, feature_counts, side="right") - 1


def group_densities(
    sizes: NDArray[np.int64], groups: NDArray[np.int64], embedding_dim: int
) -> list[dict[str, float | int]]:
    """Return mean and standard deviation of `kept dimensions / D` over the features of each group."""
    densities = sizes / embedding_dim
    members = [densities[groups == at] for at in range(len(GROUP_EDGES))]
    return [
        {"features": len(own), "mean": float(own.mean()), "sd": float(own.std())}
        if len(own)
        else {"features": 0, "mean": 0.0, "sd": 0.0}
        for own in members
    ]


class AdamParts:
    """Splits the updates of Adam into a component due to the loss and one due to weight decay.

    The first moment is linear in `gradient + decay · parameter`, so it is the sum of two moments; both are divided
    by the same second moment. Up to rounding, `parameter = start + from_loss + from_decay`.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> None:
        self.optimizer, self.parameter = optimizer, parameter
        (self.group,) = [group for group in optimizer.param_groups if any(parameter is own for own in group["params"])]
        self.start = parameter.detach().clone()
        self.from_loss, self.from_decay = torch.zeros_like(self.start), torch.zeros_like(self.start)
        self._loss_moment, self._decay_moment = torch.zeros_like(self.start), torch.zeros_like(self.start)
        optimizer.register_step_pre_hook(self._before)
        optimizer.register_step_post_hook(self._after)

    @torch.no_grad()
    def _before(self, *_: object) -> None:
        assert self.parameter.grad is not None
        share = 1 - self.group["betas"][0]
        self._loss_moment.lerp_(self.parameter.grad, share)
        self._decay_moment.lerp_(self.parameter * self.group["weight_decay"], share)

    @torch.no_grad()
    def _after(self, *_: object) -> None:
        state, (beta1, beta2) = self.optimizer.state[self.parameter], self.group["betas"]
        step = float(state["step"])
        divisor = (state["exp_avg_sq"] / (1 - beta2**step)).sqrt_().add_(self.group["eps"])
        rate = -self.group["lr"] / (1 - beta1**step)
        self.from_loss.addcdiv_(self._loss_moment, divisor, value=rate)
        self.from_decay.addcdiv_(self._decay_moment, divisor, value=rate)


@torch.no_grad()
def swapped_share(weight: Tensor, kept: Tensor) -> float:
    """Return the share of the kept entries that magnitude pruning to the same size would not keep."""
    num_kept = int(kept.sum())
    if not num_kept:
        return 0.0
    largest = torch.zeros(weight.numel(), dtype=torch.bool)
    largest[weight.abs().flatten().topk(num_kept).indices] = True
    return 1 - float((largest & kept.flatten()).sum()) / num_kept


@torch.no_grad()
def threshold_parts(table: PepEmbedding, parts: AdamParts | None = None) -> dict[str, object] | None:
    """Split raw thresholds into pressure and loss, for seen and for kept entries; None before pruning starts.

    With `plan` the pressure is the clock and the loss component is the deviation; with `decay` `parts` has both.
    """
    if parts is None:
        pressure, loss = table.clock, table.granularity.expand(table.deviation, table.field_of_feature)
    else:
        pressure, loss = parts.start + parts.from_decay, parts.from_loss
    if not bool(torch.isfinite(pressure).all()):
        return None
    shape, g = table.weight.shape, table.threshold_function
    pressure, loss, threshold = (values.expand(shape) for values in (pressure, loss, table.threshold()))
    seen = table.seen[:, None].expand(shape)
    kept = (table.weight.abs() > threshold) & seen
    without_loss = g(pressure)
    result: dict[str, object] = {"swapped_share": swapped_share(table.weight.where(seen, 0.0), kept)}
    for name, chosen in (("seen", seen), ("kept", kept)):
        if bool(chosen.any()):
            result[name] = {
                "entries": int(chosen.sum()),
                "raw_pressure": _quantiles(pressure[chosen]),
                "raw_loss": _quantiles(loss[chosen]),
                "threshold": _quantiles(threshold[chosen]),
                "threshold_without_loss": _quantiles(without_loss[chosen]),
                "moved_by_loss": float((threshold - without_loss)[chosen].abs().mean() / threshold[chosen].mean()),
            }
    return result


def _quantiles(values: Tensor, at: Sequence[float] = (0.05, 0.5, 0.95)) -> list[float]:
    return [float(value) for value in np.quantile(values.numpy(), at)]
