import torch

from thresher.data.batches.batches import Batch
from thresher.data.batches.split_batches import first_batch_digest
from thresher.data.table import Bag


class One:
    """A source of one batch."""

    def __init__(self, *inputs, labels=(0.0, 1.0), weights=None):
        self.batch = Batch(inputs, torch.tensor(labels), weights)

    def epoch(self, epoch, start=0):
        yield self.batch
        raise AssertionError("the first batch is enough")


def test_the_digest_depends_on_every_part_of_the_batch():
    class Other:
        pass

    ids, values, offsets = torch.tensor([[0, 1], [2, 3]]), torch.tensor([4, 5]), torch.tensor([0, 1, 2])
    sources = [
        One(ids),
        One(ids.T),
        One(ids.int()),
        One(ids.flatten()),
        One({"user": ids}),
        One({"item": ids}),
        One(ids, None),
        One(ids, torch.eye(2).to_sparse()),
        One(ids, Other()),
        One(ids, None, (Bag(0, values, offsets, "sum"),)),
        One(ids, None, (Bag(0, values, offsets, "mean"),)),
        One(ids, labels=(1.0, 1.0)),
        One(ids, weights=torch.ones(2)),
    ]
    assert len({first_batch_digest(source) for source in sources}) == len(sources)
    assert first_batch_digest(One(ids)) == first_batch_digest(One(ids.clone()))
