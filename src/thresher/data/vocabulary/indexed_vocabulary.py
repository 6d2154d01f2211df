"""IndexedVocabulary: the vocabulary of a field in a bundle, with the spelling of its numbers and booleans."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from thresher.data.vocabulary.value_index import ValueIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl


INTEGER, INTEGER_AS_FLOAT = r"^(-?\d+)$", r"^(-?\d+)\.0$"
_INTEGER, _INTEGER_AS_FLOAT = re.compile(r"-?\d+"), re.compile(r"(-?\d+)\.0")


@dataclass(frozen=True, kw_only=True)
class Spelling:
    """The spellings in a vocabulary. Raw values are respelled before they are looked up.

    pandas writes the id 3 as `3.0` into a CSV if the column has missing values, else as `3`. If the vocabulary contains
    both spellings, they are two values. Works without polars for single texts.
    """

    integers: bool = False  # the vocabulary has values such as `3`
    integers_as_floats: bool = False  # such as `3.0`
    booleans: Mapping[str, str] = field(default_factory=dict)  # the spelling of True and False

    @classmethod
    def of(cls, values: "pl.Series") -> "Spelling":
        candidates = values.filter(values.str.ends_with(".0"))  # faster than the pattern on all values
        return cls(
            integers=bool(values.str.contains(INTEGER).any()),
            integers_as_floats=bool(candidates.str.contains(INTEGER_AS_FLOAT).any()),
            booleans=_boolean_spelling(values.filter(values != "").head(3).to_list()),
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Spelling":
        booleans = {str(key): str(value) for key, value in content["booleans"].items()}
        return cls(
            integers=bool(content["integers"]),
            integers_as_floats=bool(content["integers_as_floats"]),
            booleans=booleans,
        )

    def respell(self, texts: "pl.Series", kind: "pl.DataType") -> "pl.Series":
        """The texts of a column of type `kind`, with integers and booleans spelled as in the vocabulary."""
        if str(kind) == "Boolean":
            return texts.replace(dict(self.booleans))
        if self.integers_as_floats:
            return texts if self.integers else texts.str.replace(INTEGER, "${1}.0")
        if self.integers and texts.str.ends_with(".0").any():
            return texts.str.replace(INTEGER_AS_FLOAT, "${1}")
        return texts

    def respell_texts(self, texts: list[str]) -> list[str]:
        """Many texts."""
        if self.integers_as_floats == self.integers or not (self.integers_as_floats or ".0" in "".join(texts)):
            return texts
        return [self.respell_text(text) for text in texts]

    def respell_text(self, text: str, *, boolean: bool = False) -> str:
        """One text; `boolean` if the raw value is a bool."""
        if boolean:
            return self.booleans.get(text, text)
        if self.integers_as_floats:
            return f"{text}.0" if not self.integers and _INTEGER.fullmatch(text) else text
        if self.integers and text.endswith(".0") and (found := _INTEGER_AS_FLOAT.fullmatch(text)):
            return found[1]
        return text


def _boolean_spelling(filled: Sequence[str]) -> dict[str, str]:
    """The spelling of True and False, if they are the only values and each has one spelling."""
    own = {value.capitalize(): value for value in filled}
    return own if len(own) == len(filled) and own.keys() <= {"True", "False"} else {}


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
        return self.index.find_all(values.to_list())

    def items(self) -> "Iterator[tuple[str, int]]":
        """The values that have a key, with their local ids."""
        return self.index.items()
