"""FirstBatches: a part of each epoch, for trainings shorter than an epoch. Shuffled batches make it a random sample."""

from collections.abc import Iterator
from itertools import islice

from thresher.data.batches.batches import Batch, BatchSource, shared_part
from thresher.errors import ConfigError


class FirstBatches:
    """The first `share` of the batches of every epoch, at least one.

    Args:
        share: above 0 and at most 1.
    """

    def __init__(self, source: BatchSource, share: float) -> None:
        if not 0 < share <= 1:
            raise ConfigError(f"the share of an epoch is {share}; it must be above 0 and at most 1")
        self.source, self.share = source, share
        self.num_batches = max(1, round(share * len(source)))

    @property
    def num_rows(self) -> int:
        """Exact unless the last batch, which may be smaller, is included."""
        return round(self.source.num_rows * self.num_batches / max(1, len(self.source)))

    def __len__(self) -> int:
        return self.num_batches

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        return islice(self.source.epoch(epoch, start), max(0, self.num_batches - start))

    @property
    def epoch_share(self) -> float:
        """What one epoch visits, as a share of an epoch of the source."""
        return self.num_batches / max(1, len(self.source))

    def part(self, rank: int, size: int) -> "FirstBatches":
        """The part of each batch that belongs to process `rank` of `size`."""
        return FirstBatches(shared_part(self.source, rank, size), self.share)
