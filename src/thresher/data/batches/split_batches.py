"""SplitBatches: the three splits of a data set as batches; FirstBatches: a part of each epoch of one."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from thresher.data.batches.batches import Batch, Batches, BatchSource, shared_part
from thresher.data.table import EncodedTable
from thresher.errors import ConfigError, DataError

EVALUATION_BATCH_SIZE = 16_384


@dataclass(frozen=True, kw_only=True)
class SplitBatches:
    """Three batch sources of any kind; `SplitBatches.of` builds them from an encoded table."""

    train: BatchSource
    validation: BatchSource  # every choice is made on it
    test: BatchSource | None = None  # read once per reported model, at the end
    choices: BatchSource | None = None  # shuffled validation rows for a bilevel search; `validation` if None
    feature_counts: NDArray[np.int64] | None = None  # in `train`, `[N]`, for the AUC on rows with rare features

    @classmethod
    def of(cls, table: EncodedTable, batch_size: int, *, seed: int) -> "SplitBatches":
        """Shuffled training batches, and the other splits in file order."""
        for name in ("validation", "test"):
            labels = table.split(name).labels
            if len(labels) and labels.min() == labels.max():
                problem = (
                    f"all {len(labels):,} labels of the {name} split are {labels[0]:g}, but AUC needs both 0 and 1"
                )
                raise DataError(f"{problem}. Use a larger split or another way to split (data.split)")
        return cls(
            train=Batches(table.split("train"), batch_size, seed=seed),
            validation=Batches(table.split("validation"), EVALUATION_BATCH_SIZE),
            test=Batches(table.split("test"), EVALUATION_BATCH_SIZE),
            choices=Batches(table.split("validation"), batch_size, seed=seed),
            feature_counts=table.feature_counts,
        )


def first_batch_digest(source: BatchSource) -> str:
    """A hash of the first batch, to detect that a run is resumed with other data, another order or batch size."""
    digest = hashlib.sha256()
    for batch in source.epoch(1):
        for part in _parts((batch.inputs, batch.labels, batch.weights)):
            digest.update(part)
        break
    return digest.hexdigest()[:16]


def _parts(value: Any) -> Iterator[bytes]:
    """The content of a batch as bytes; for objects of unknown types only the type."""
    if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_nested:
        yield f"{value.dtype} {list(value.shape)}".encode()
        yield value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield str(name).encode()
            yield from _parts(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _parts(one)
    elif is_dataclass(value):
        for one in fields(value):
            yield from _parts(getattr(value, one.name))
    else:
        yield (repr(value) if isinstance(value, str | int | float | None) else type(value).__qualname__).encode()


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
