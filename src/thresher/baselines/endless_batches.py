"""EndlessBatches: batches epoch after epoch, for a search that looks at validation rows between training steps."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thresher.data.batches.batches import Batch, BatchSource


class EndlessBatches:
    """A source without end that can go on from any place."""

    def __init__(self, source: "BatchSource") -> None:
        self.source = source
        self.go_to(1, 0)

    def go_to(self, epoch: int, place: int) -> None:
        self.epoch, self.place = epoch, place
        self._iterator: Iterator[Batch] = iter(self.source.epoch(epoch, place))

    def position(self) -> tuple[int, int]:
        return self.epoch, self.place

    def next(self) -> "Batch":
        if self.place >= len(self.source):
            self.go_to(self.epoch + 1, 0)
        self.place += 1
        return next(self._iterator)
