"""The models of DeepCTR-Torch."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from compatibility_models.case import FIELD_SIZES, LENGTH, NUM_ITEMS, WIDTH, Case, fields, items, sequences

BOTH = (
    "DeepFM", "xDeepFM", "AFM", "DIFM", "IFM", "AutoInt", "DCN", "DCNMix", "FiBiNET", "NFM", "ONN", "CCPM", "AFN",
    "WDL",
)  # fmt: skip
DEEP_ONLY = ("PNN", "MLR", "SharedBottom", "ESMM", "MMOE", "PLE")


def flat(step: int) -> tuple[Tensor, ...]:
    return (fields(step).float(),)


def with_history(step: int) -> tuple[Tensor, ...]:
    """User, target item, history of items, its length."""
    history = sequences(step)
    parts = [fields(step)[:, :1], items(step)[:, None], history, (history > 0).sum(1, keepdim=True)]
    return (torch.cat(parts, dim=1).float(),)


def cases() -> list[Case]:
    from deepctr_torch import models
    from deepctr_torch.inputs import SparseFeat, VarLenSparseFeat

    def columns() -> list[Any]:
        return [SparseFeat(f"field_{k}", size, embedding_dim=WIDTH) for k, size in enumerate(FIELD_SIZES)]

    def history_columns() -> list[Any]:
        history = SparseFeat("hist_item", NUM_ITEMS, embedding_dim=WIDTH, embedding_name="item")
        return [
            SparseFeat("user", FIELD_SIZES[0], embedding_dim=WIDTH),
            SparseFeat("item", NUM_ITEMS, embedding_dim=WIDTH),
            VarLenSparseFeat(history, LENGTH, length_name="length"),
        ]

    def of(name: str, *arguments: Callable[[], Any]) -> Callable[[], torch.nn.Module]:
        return lambda: getattr(models, name)(*(one() for one in arguments))

    found = [Case(name, of(name, columns, columns), flat) for name in BOTH]
    found += [Case(name, of(name, columns), flat, min_embedding_dim=1 if name == "MLR" else 2) for name in DEEP_ONLY]
    return found + [Case(name, of(name, history_columns, lambda: ["item"]), with_history) for name in ("DIN", "DIEN")]
