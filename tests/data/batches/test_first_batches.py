import pytest
import torch

from thresher.data.batches.batches import TensorBatches
from thresher.data.batches.split_batches import FirstBatches
from thresher.errors import ConfigError, DataError


def source(num_rows=100):
    ids = torch.arange(num_rows).unsqueeze(1)
    return TensorBatches([ids], torch.zeros(num_rows), batch_size=10, seed=0)


def rows(batches):
    return [batch.inputs[0].flatten().tolist() for batch in batches]


def test_the_first_batches_of_each_epoch_in_the_same_order():
    whole, part = source(), FirstBatches(source(), 0.25)
    assert len(part) == 2
    assert part.num_rows == 20
    for epoch in (1, 2):
        assert rows(part.epoch(epoch)) == rows(whole.epoch(epoch))[:2]
        assert rows(part.epoch(epoch, 1)) == rows(whole.epoch(epoch))[1:2]
        assert rows(part.epoch(epoch, 2)) == []


@pytest.mark.parametrize("inputs", [torch.zeros(3), {"users": torch.zeros(3)}])
def test_inputs_that_are_not_a_tuple_are_refused(inputs):
    with pytest.raises(DataError, match="one entry for each argument of the model"):
        TensorBatches(inputs, torch.zeros(3), batch_size=2)
    assert len(next(iter(TensorBatches((inputs,), torch.zeros(3), batch_size=2).epoch(1))).inputs) == 1


def test_at_least_one_batch():
    assert len(FirstBatches(source(), 1e-9)) == 1


def test_processes_share_the_same_batches():
    halves = [FirstBatches(source(), 0.25).part(rank, 2) for rank in range(2)]
    shared = [sorted(one + other) for one, other in zip(*(rows(half.epoch(1)) for half in halves), strict=True)]
    assert shared == [sorted(batch) for batch in rows(source().epoch(1))[:2]]


@pytest.mark.parametrize("share", [0, -1, 1.01, float("nan")])
def test_a_share_is_above_0_and_at_most_1(share):
    with pytest.raises(ConfigError, match="share of an epoch"):
        FirstBatches(source(), share)
