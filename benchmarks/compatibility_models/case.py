"""Case: a small model of another library, and how it is called."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

FIELD_SIZES = (24, 16, 30)
BATCH, LENGTH, NUM_ITEMS, WIDTH = 32, 5, 24, 8


@dataclass(frozen=True)
class Case:
    """A model and its call: `inputs(step)` are the arguments of `call(model, …)`, which returns one float tensor."""

    name: str
    construct: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Any, ...]]
    call: Callable[..., Tensor] = lambda model, *inputs: model(*inputs)
    min_embedding_dim: int = 2

    def build(self) -> nn.Module:
        torch.manual_seed(0)
        model = self.construct()
        with torch.no_grad():
            for module in model.modules():  # tables of some libraries start near 0
                if isinstance(module, nn.Embedding | nn.EmbeddingBag):
                    nn.init.normal_(module.weight, std=0.1)
                    if module.padding_idx is not None:
                        module.weight[module.padding_idx] = 0
        return model

    def outputs(self, model: nn.Module, step: int) -> Tensor:
        return self.call(model, *self.inputs(step))


def generator(step: int) -> torch.Generator:
    return torch.Generator().manual_seed(step)


def fields(step: int) -> Tensor:
    """Ids `[B, F]`, each within its field."""
    draw = generator(step)
    return torch.stack([torch.randint(size, (BATCH,), generator=draw) for size in FIELD_SIZES], dim=1)


def sequences(step: int, length: int = LENGTH) -> Tensor:
    """Item ids `[B, L]`; 0 is padding at the end of some sequences."""
    draw = generator(step + 1000)
    items = torch.randint(1, NUM_ITEMS, (BATCH, length), generator=draw)
    lengths = torch.randint(1, length + 1, (BATCH, 1), generator=draw)
    lengths[0] = length
    return items * (torch.arange(length) < lengths)


def items(step: int) -> Tensor:
    return torch.randint(1, NUM_ITEMS, (BATCH,), generator=generator(step + 2000))
