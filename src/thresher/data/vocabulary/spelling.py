"""How the numbers and booleans of a field were spelled in training: `3` or `3.0`, `True` or `true`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
