"""Dates in ONNX: a part of a date that is given as a number, such as `14102100` for `%y%m%d%H`, or Unix seconds."""

import re
from typing import TYPE_CHECKING

import numpy as np

from thresher.data.schema import Field
from thresher.errors import FormatError

if TYPE_CHECKING:
    from thresher.serving.exports.onnx_raw import RawValues

WIDTHS = {"Y": 4, "y": 2, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2}
DAY_SECONDS = 86400


def check_date_format(field: Field) -> None:
    """Raise unless the dates of a field are numbers: ONNX has no operations for parts of a text."""
    if field.date_format == "unix":
        return
    codes = re.findall(r"%(.)", field.date_format)
    plain = "".join(f"%{code}" for code in codes) == field.date_format and set(codes) <= set(WIDTHS)
    if not plain or not {"m", "d"} <= set(codes) or not {"Y", "y"} & set(codes):
        raise FormatError(
            f"field {field.name!r} reads dates as {field.date_format or 'ISO 8601'!r}. ONNX supports dates written as "
            "one number: 'unix', or digits only, such as %Y%m%d. Serve the bundle, or export ids."
        )


class DateParts:
    """Parts of dates as int64, added to the nodes of `RawValues`."""

    def __init__(self, graph: "RawValues") -> None:
        self.graph = graph

    def of(self, field: Field, numbers: str) -> tuple[str, str]:
        """The part of each date, and which numbers are no date."""
        add, graph = self.graph.add, self.graph
        missing = add("IsNaN", numbers)
        filled = add("Where", missing, graph.constant(np.float64(0)), numbers)
        whole = add("Cast", add("Floor", filled), to=7)  # INT64
        if field.date_format == "unix":
            day, second = self._divide(whole, DAY_SECONDS)
            broken = add("IsInf", numbers)
            return self._part(field, day, add("Div", second, graph.constant(np.int64(3600)))), broken
        parts: dict[str, str] = {}
        rest = whole
        for code in reversed(re.findall(r"%(.)", field.date_format)):
            unit = graph.constant(np.int64(10 ** WIDTHS[code]))
            parts[code], rest = add("Mod", rest, unit), add("Div", rest, unit)
        year = parts.get("Y") or self._long_year(parts["y"])
        broken = self._outside(parts, rest)
        day = self._day_number(year, parts["m"], parts["d"])
        broken = add("Or", broken, add("Not", add("Equal", self._calendar(day, "day"), parts["d"])))  # 30 February
        hour = parts.get("H") or graph.constant(np.int64(0))
        return self._part(field, day, add("Add", hour, self._zero(rest))), broken

    def _part(self, field: Field, day: str, hour: str) -> str:
        """A part of the date that is `day` days after 1970-01-01."""
        add, constant = self.graph.add, self.graph.constant
        weekday = add("Mod", add("Add", day, constant(np.int64(3))), constant(np.int64(7)))  # 0 is Monday
        if field.date_part == "hour":
            return str(hour)
        if field.date_part == "weekday":
            return str(add("Add", weekday, constant(np.int64(1))))
        if field.date_part == "hour_of_week":
            return str(add("Add", add("Mul", weekday, constant(np.int64(24))), hour))
        return self._calendar(day, field.date_part)

    def _day_number(self, year: str, month: str, day: str) -> str:
        """Days since 1970-01-01 (Howard Hinnant, chrono-compatible low-level date algorithms)."""
        add = self.graph.add
        number = self._number
        early = add("Cast", add("LessOrEqual", month, number(2)), to=7)
        year = add("Sub", year, early)
        era, in_era = self._divide(year, 400)
        shifted = add("Mod", add("Add", month, number(9)), number(12))  # March is 0
        of_year = add("Div", add("Add", add("Mul", shifted, number(153)), number(2)), number(5))
        of_year = add("Sub", add("Add", of_year, day), number(1))
        leaps = add("Sub", add("Div", in_era, number(4)), add("Div", in_era, number(100)))
        of_era = add("Add", add("Add", add("Mul", in_era, number(365)), leaps), of_year)
        return str(add("Sub", add("Add", add("Mul", era, number(146097)), of_era), number(719468)))

    def _calendar(self, day: str, part: str) -> str:
        """Year, month or day of a day number; the inverse of `_day_number`."""
        add = self.graph.add
        number = self._number
        era, of_era = self._divide(add("Add", day, number(719468)), 146097)
        year = add("Sub", of_era, add("Div", of_era, number(1460)))
        year = add("Sub", add("Add", year, add("Div", of_era, number(36524))), add("Div", of_era, number(146096)))
        year = add("Div", year, number(365))
        before = add(
            "Sub", add("Add", add("Mul", year, number(365)), add("Div", year, number(4))), add("Div", year, number(100))
        )
        of_year = add("Sub", of_era, before)
        shifted = add("Div", add("Add", add("Mul", of_year, number(5)), number(2)), number(153))
        first = add("Div", add("Add", add("Mul", shifted, number(153)), number(2)), number(5))
        month = add("Add", add("Mod", add("Add", shifted, number(2)), number(12)), number(1))
        if part == "day":
            return str(add("Add", add("Sub", of_year, first), number(1)))
        if part == "month":
            return str(month)
        early = add("Cast", add("LessOrEqual", month, number(2)), to=7)
        return str(add("Add", add("Add", add("Mul", era, number(400)), year), early))

    def _long_year(self, year: str) -> str:
        """Two digits: 1970 to 2069, as polars reads them."""
        add, constant = self.graph.add, self.graph.constant
        old = add("Cast", add("GreaterOrEqual", year, constant(np.int64(70))), to=7)
        return str(add("Sub", add("Add", year, constant(np.int64(2000))), add("Mul", old, constant(np.int64(100)))))

    def _outside(self, parts: dict[str, str], rest: str) -> str:
        """Which numbers have too many digits, or a month, day, hour, minute or second that does not exist."""
        add, constant = self.graph.add, self.graph.constant
        broken = add("Not", add("Equal", rest, constant(np.int64(0))))
        bounds = {"m": (1, 12), "d": (1, 31), "H": (0, 23), "M": (0, 59), "S": (0, 59)}
        for code, (least, most) in bounds.items():
            if code in parts:
                below = add("Less", parts[code], constant(np.int64(least)))
                above = add("Greater", parts[code], constant(np.int64(most)))
                broken = add("Or", broken, add("Or", below, above))
        return str(broken)

    def _divide(self, numbers: str, divisor: int) -> tuple[str, str]:
        """Quotient rounded down, and remainder; ONNX divides towards zero."""
        add, constant = self.graph.add, self.graph.constant(np.int64(divisor))
        remainder = add("Mod", numbers, constant)  # has the sign of the divisor
        return add("Div", add("Sub", numbers, remainder), constant), remainder

    def _number(self, value: int) -> str:
        return self.graph.constant(np.int64(value))

    def _zero(self, numbers: str) -> str:
        return str(self.graph.add("Sub", numbers, numbers))
