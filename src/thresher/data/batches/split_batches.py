"""SplitBatches: the three splits of a data set as batches; all that training, search and retraining are given."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thresher.data.batches.batches import Batches, BatchSource
from thresher.data.table import EncodedTable
from thresher.errors import DataError

EVALUATION_BATCH_SIZE = 16_384


@dataclass(frozen=True, kw_only=True)
class SplitBatches:
    """Any three batch sources will do; `SplitBatches.of` makes them from an encoded table.

    Attributes:
        train: what weights are learned on.
        validation: what every choice is made on.
        test: read once per reported model, at the end.
        choices: validation rows in shuffled batches, on which a bilevel search learns its choices of sizes;
            `validation` itself where there are none.
        feature_counts: how often each feature occurs in `train`, `[N]`, for the AUC on rows with rare features.
    """

    train: BatchSource
    validation: BatchSource
    test: BatchSource | None = None
    choices: BatchSource | None = None
    feature_counts: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, table: EncodedTable, batch_size: int, *, seed: int) -> "SplitBatches":
        """Shuffled training batches, and the other splits in file order.

        Raises:
            DataError: a split that is to be evaluated has rows of one class alone.
        """
        for name in ("validation", "test"):
            labels = table.split(name).labels
            if len(labels) and labels.min() == labels.max():
                raise DataError(
                    f"all {len(labels):,} labels of the {name} split are {labels[0]:g}, and AUC needs both classes; "
                    "take a larger split, or split in another way (data.split)"
                )
        return cls(
            train=Batches(table.split("train"), batch_size, seed=seed),
            validation=Batches(table.split("validation"), EVALUATION_BATCH_SIZE),
            test=Batches(table.split("test"), EVALUATION_BATCH_SIZE),
            choices=Batches(table.split("validation"), batch_size, seed=seed),
            feature_counts=table.feature_counts,
        )
