"""Tiny numbers are zeros inside training steps, and numbers again everywhere else."""

import pytest
import torch
from torch import nn
from training_toys import toy_model, toy_sources

from thresher.data.batches.split_batches import SplitBatches
from thresher.training.devices import SMALLEST_NORMAL, tiny_numbers_are_zero, tiny_numbers_as_zero
from thresher.training.fit import TrainingConfig, fit


def test_tiny_numbers_are_zeros_inside_and_numbers_after_an_error() -> None:
    def fail() -> None:
        with tiny_numbers_as_zero():
            assert float(torch.tensor(SMALLEST_NORMAL) / 2) == 0.0
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert float(torch.tensor(SMALLEST_NORMAL) / 2) > 0.0


def test_nested_use_keeps_zeros_until_the_outer_end() -> None:
    with tiny_numbers_as_zero():
        with tiny_numbers_as_zero():
            pass
        assert tiny_numbers_are_zero()
    assert not tiny_numbers_are_zero()


class Recording(nn.Module):
    """A model that records in which steps tiny numbers are zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.model = toy_model()
        self.found: dict[bool, set[bool]] = {True: set(), False: set()}

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        self.found[self.training].add(tiny_numbers_are_zero())
        logits: torch.Tensor = self.model(*inputs)
        return logits


def test_only_training_steps_are_inside() -> None:
    train, validation = toy_sources()
    model = Recording()
    fit(model, SplitBatches(train=train, validation=validation), TrainingConfig(max_epochs=1), seed=0)
    assert model.found == {True: {True}, False: {False}}
    assert not tiny_numbers_are_zero()
