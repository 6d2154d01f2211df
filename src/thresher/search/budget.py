"""Budget: the maximum size of the searched tables.

Parameters (`30k`), a share of `N·D` (`2%`), bytes (`1MB`), bytes of everything that a prediction loads (`1MB bundle`),
or a share of the rows, which are kept whole (`10%rows`).
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from thresher.errors import BudgetError

Unit = Literal["parameters", "share", "bytes", "bundle", "rows"]
RestOfBundle: TypeAlias = Callable[[npt.NDArray[np.bool_]], int]
"""Which rows `[N]` keep an entry → bytes of a bundle beside the searched tables: keys of these rows, network, …"""

_PARAMETER_FACTORS = {"": 1, "k": 1_000, "M": 1_000_000}
_BYTE_FACTORS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_FORM = re.compile(r"(?P<number>\d[\d_,]*(?:\.\d+)?)\s*(?P<suffix>%(?:\s*rows)?|[A-Za-z]+\s*bundle|[A-Za-z]*)")
_BYTES_PER_VALUE = 4
_EXAMPLES = "write parameters as 30k or 25000, a share as 2%, whole rows as 10%rows, bytes as 1MB or '1MB bundle'"


@dataclass(frozen=True)
class Budget:
    """A size with its unit; the way it is written does not matter: `30k` and `30000` are equal.

    >>> Budget.parse("30k"), Budget.parse("2%"), Budget.parse("1MB")
    (Budget('30k'), Budget('2%'), Budget('1MB'))
    >>> Budget.parse("2%").max_entries(264_256)
    5285
    """

    unit: Unit
    amount: int | Fraction  # exact: a float share would be off by one entry in a table of billions
    text: str = field(compare=False)
    rest: RestOfBundle | None = field(default=None, compare=False)  # only of "bundle": what else the bytes count

    @classmethod
    def parse(cls, text: "str | int | Budget") -> "Budget":
        """Parse a budget; a number without unit is a number of parameters."""
        if isinstance(text, Budget):
            return text
        written = str(text).strip()
        form = _FORM.fullmatch(written)
        if form is None:
            raise BudgetError(f"budget {written!r} cannot be parsed; {_EXAMPLES}")
        # exact: 16.1 · 1000 is not an integer in floats
        number, suffix = Fraction(form["number"].replace(",", "").replace("_", "")), form["suffix"]
        if number <= 0:
            raise BudgetError(f"budget {written!r} keeps nothing; it must be above 0")
        if suffix.startswith("%"):
            if number > 100:
                raise BudgetError(f"budget {written!r} is more than the whole table; the maximum is 100%")
            return cls("rows" if suffix.endswith("rows") else "share", number / 100, written)
        of_bundle, suffix = suffix.endswith("bundle"), suffix.removesuffix("bundle").strip()
        # "30K", "30m" and "30B" are unambiguous; "30b" could be bits, bytes or billions
        suffix = {"K": "k", "m": "M"}.get(suffix, suffix)
        if suffix in _PARAMETER_FACTORS and not of_bundle:
            parameters = number * _PARAMETER_FACTORS[suffix]
            if parameters.denominator != 1:
                raise BudgetError(f"budget {written!r} is not a whole number of parameters; {_EXAMPLES}")
            return cls("parameters", int(parameters), written)
        spelled = {known.lower(): known for known in _BYTE_FACTORS if known != "B"} | {"B": "B"}
        bytes_suffix = spelled.get(suffix, spelled.get(suffix.lower()) if len(suffix) > 1 else None)
        if bytes_suffix is not None:
            return cls("bundle" if of_bundle else "bytes", int(number * _BYTE_FACTORS[bytes_suffix]), written)
        raise BudgetError(f"budget {written!r} has the unknown unit {suffix!r}; {_EXAMPLES}")

    def max_entries(self, num_entries: int) -> int:
        """An upper bound of the entries it allows in tables of `num_entries`; for bytes, without an index.

        For rows of tables of different widths, it is a mean.
        """
        if self.unit == "parameters":
            return int(self.amount)
        if self.unit == "bundle":  # it may be larger than the tables
            return min(int(self.amount // _BYTES_PER_VALUE), num_entries)
        return int(self.amount // _BYTES_PER_VALUE if self.unit == "bytes" else self.amount * num_entries)

    @property
    def in_bytes(self) -> bool:
        return self.unit in ("bytes", "bundle")

    @property
    def slug(self) -> str:
        """The budget as a file name."""
        return re.sub(r"[,_\s]", "", self.text).replace("%", "pct")

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Budget({self.text!r})"


Budgets: TypeAlias = str | int | Budget | Iterable[str | int | Budget]
"""Budgets as `"50k,25k,2%"`, a list, or a single one."""


def parse_budgets(texts: Budgets) -> tuple[Budget, ...]:
    """Parse budgets from `"50k,25k,2%"`, a list, or a single one; duplicates are dropped, the order is kept."""
    parts: Iterable[str | int | Budget]
    if isinstance(texts, str):
        parts = [part for part in re.split(r"\s*,\s*", texts.strip()) if part]
    else:
        parts = [texts] if isinstance(texts, int | Budget) else texts
    budgets = tuple(dict.fromkeys(Budget.parse(part) for part in parts))
    if not budgets:
        raise BudgetError(f"no budget given; {_EXAMPLES}")
    return budgets


def check_budgets(budgets: Iterable[Budget], num_entries: int) -> None:
    """Raise `BudgetError` for budgets that tables of `num_entries` cannot meet."""
    for budget in budgets:
        if budget.unit == "bundle" and budget.rest is None:
            message = f"budget {budget} counts a whole bundle, and no bundle is written here. Use bytes of tables: 1MB"
            raise BudgetError(message, budget=budget.text)
        most = budget.max_entries(num_entries)
        if most < 1:
            raise BudgetError(f"budget {budget} keeps none of {num_entries:,} entries; raise it", budget=budget.text)
        if most > num_entries:
            in_bytes = budget.unit == "bytes"  # of a dense table, which needs no index
            whole = f"{_BYTES_PER_VALUE * num_entries:,} bytes" if in_bytes else f"{num_entries:,} entries"
            message = f"budget {budget} is above the {whole} of the searched tables. Lower it"
            raise BudgetError(message, budget=budget.text)
