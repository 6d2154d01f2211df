"""IndexedVocabulary: the vocabulary of a field in a bundle. Only features whose prediction differs have a key."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from thresher.data.vocabulary.spelling import Spelling
from thresher.data.vocabulary.text_blob import TextBlob
from thresher.data.vocabulary.value_index import FEW_TEXTS, ValueIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl


@dataclass(frozen=True, eq=False, kw_only=True)
class IndexedVocabulary:
    """Values → local ids from a `ValueIndex`; every other value gets 0, the unknown feature.

    A dropped feature that the model computes like the unknown feature of its field needs no key. Local ids are those of
    the encoded table, so they may have gaps. Works without polars, but for `to_ids`.
    """

    index: ValueIndex
    size: int  # number of local ids in the encoded table, including 0
    spelling: Spelling
    has_missing: bool  # whether a missing value was a feature of its own
    example: str | None = None  # the most frequent value of training

    @property
    def complete(self) -> bool:
        """Whether every feature has a key; otherwise id 0 may be a dropped feature."""
        return len(self.index) == self.size - 1

    def to_ids(self, values: "pl.Series") -> NDArray[np.int32]:
        """Local ids of a String series; 0 for values without a key."""
        if len(values) <= FEW_TEXTS:
            return self.index.find_all(values.to_list())
        blob = "".join(values.to_list()).encode()
        return self.index.find_blob(TextBlob.of_bytes(blob, values.str.len_bytes().to_numpy()))

    def items(self) -> "Iterator[tuple[str, int]]":
        """The values that have a key, with their local ids."""
        return self.index.items()
