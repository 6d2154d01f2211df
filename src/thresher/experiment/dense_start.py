"""DenseStart: the trained dense model as the start of a search, in memory or in a file of the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from thresher._internal.mapped_tensors import tensor_state
from thresher.errors import FormatError, ThresherError
from thresher.training.checkpoint import Checkpoint

SEARCH_STATE = {"deviation", "clock", "seen", "mask"}
"""State that a searched table has beside the dense model's weights."""


@dataclass(frozen=True)
class DenseStart:
    """The weights of a trained dense model.

    Attributes:
        state: its `state_dict`.
        num_epochs: length of its training; None if it was trained elsewhere.
    """

    state: Mapping[str, Tensor]
    num_epochs: float | None

    @classmethod
    def of(cls, model: nn.Module, num_epochs: float | None) -> "DenseStart":
        return cls({name: tensor.detach().clone() for name, tensor in tensor_state(model).items()}, num_epochs)

    def save(self, path: Path) -> None:
        Checkpoint(dict(self.state), {"num_epochs": self.num_epochs}).save(path)

    @classmethod
    def load(cls, path: Path) -> "DenseStart":
        stored = Checkpoint.load(path)
        if "num_epochs" not in stored.metadata:
            raise FormatError(f"{path} holds another checkpoint, not the weights of a dense model. Delete it.")
        return cls(stored.tensors, stored.metadata["num_epochs"])

    @torch.no_grad()
    def load_into_(self, model: nn.Module, feature_counts: NDArray[Any] | None) -> None:
        """Load the weights into a model with searched tables.

        Args:
            feature_counts: how often each feature occurs in training `[N]`. Features that never occur are marked as not
                seen: their weights are still random. Without counts every row counts as seen.
        """
        missing, unexpected = model.load_state_dict(dict(self.state), strict=False)
        if others := [name for name in missing if name.rpartition(".")[2] not in SEARCH_STATE] + unexpected:
            raise ThresherError(
                f"the weights of the dense model do not fit the searched model: {', '.join(others[:3])}. Use the same "
                "model and the same embedding_dim"
            )
        for module in model.modules():
            if isinstance(seen := getattr(module, "seen", None), Tensor):
                known = feature_counts is not None and len(feature_counts) == len(seen)
                seen.copy_(torch.from_numpy(np.asarray(feature_counts) > 0) if known else torch.ones_like(seen))
