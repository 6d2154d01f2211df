"""A cell is converted in the same way alone, beside other rows, and in a frame."""

from collections import deque
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from hypothesis import given, settings, strategies as st

from thresher.data.encode.transforms import bag_values, field_values
from thresher.data.read.column_values import as_numbers, as_text
from thresher.data.read.python_values import plain_cell, plain_text
from thresher.data.schema import DenseColumn, Field, Label, Schema
from thresher.errors import DataError
from thresher.serving.request_rows import rows_to_frame

FORMS = (
    Field(name="none", column="x"),
    Field(name="hash", column="x", transform="hash", num_buckets=1000),
    Field(name="log2", column="x", transform="log2"),
    Field(name="quantiles", column="x", transform="quantiles", edges=(-1e9, -3.0, 0.0, 0.1, 2.0, 7.0, 1e9)),
    Field(name="hour", column="x", transform="date"),
    Field(name="seconds", column="x", transform="date", date_part="day", date_format="unix"),
    Field(name="digits", column="x", transform="date", date_part="day", date_format="%Y%m%d"),
)
SINGLE = Schema(fields=FORMS, label=Label(column="clicked"), dense=(DenseColumn(name="number", column="x"),))
SEVERAL = Schema(fields=(Field(name="x", pooling="mean", separator="|"),), label=Label(column="clicked"))

TEXTS = st.text("019.:-|aTrue ", max_size=6) | st.sampled_from(["2024-03-05", "20240305", "nan", "09:30", "True"])
KINDS = {
    "text": TEXTS,
    "int": st.integers(-(2**62), 2**62) | st.integers(-9, 9) | st.sampled_from([20240305, 1_700_000_000]),
    "small int": st.integers(-(10**9), 10**9),
    "float": st.floats() | st.integers(-9, 9).map(float) | st.sampled_from([20240305.0, 1_700_000_000.5, 1e-5, 1e16]),
    "bool": st.booleans(),
    "decimal": st.decimals(-1000, 1000, places=2),
    "bytes": TEXTS.map(str.encode),
    "date": st.dates(date(1900, 1, 1), date(2100, 1, 1)),
    "datetime": st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    "time": st.times(),
    "timedelta": st.timedeltas(timedelta(-900), timedelta(900)),
}
MISSING = st.sampled_from([None, float("nan"), np.float32("nan"), np.datetime64("NaT"), pd.NA, pd.NaT, Decimal("NaN")])
CELLS = MISSING | st.one_of(*KINDS.values()) | KINDS["float"].map(np.float64) | KINDS["int"].map(np.int64)


def meanings(frame: pl.DataFrame) -> list[tuple]:
    """The value of each cell under every transform, and as a number."""
    numbers, broken = as_numbers(frame["x"])
    texts = (field_values(field, frame["x"]).to_list() for field in FORMS)
    return list(zip(*texts, map(repr, numbers.tolist()), broken.tolist(), strict=True))


def bags(frame: pl.DataFrame) -> list[list[str]]:
    values, offsets = bag_values(SEVERAL.fields[0], frame["x"])
    texts = as_text(values).to_list()
    return [texts[first:last] for first, last in pairwise(offsets)]


@given(st.lists(CELLS, min_size=1, max_size=5))
@settings(deadline=None)
def test_a_cell_does_not_depend_on_other_rows(cells):
    together = meanings(rows_to_frame([{"x": cell} for cell in cells], SINGLE))
    assert together == [meanings(rows_to_frame({"x": cell}, SINGLE))[0] for cell in cells]
    assert together == meanings(rows_to_frame(pd.DataFrame({"x": pd.Series(cells, dtype=object)}), SINGLE))
    assert together == meanings(rows_to_frame(pl.DataFrame({"x": pl.Series(cells, dtype=pl.Object)}), SINGLE))


@pytest.mark.parametrize("kind", KINDS)
def test_a_cell_converts_as_it_does_in_a_frame(kind):
    @given(st.lists(st.none() | KINDS[kind], min_size=1, max_size=5))
    @settings(deadline=None, max_examples=40)
    def check(cells):
        frame = pl.DataFrame({"x": pl.Series(cells, dtype=pl.Decimal(12, 2) if kind == "decimal" else None)})
        expected = meanings(rows_to_frame(frame, SINGLE))
        assert meanings(rows_to_frame(frame.to_dicts(), SINGLE)) == expected
        if kind in ("text", "small int", "float", "bool", "datetime", "time"):  # pandas stores the others differently
            pandas = frame.to_pandas()
            assert meanings(rows_to_frame(pandas, SINGLE)) == expected
            assert meanings(rows_to_frame(pandas.to_dict("records"), SINGLE)) == expected

    check()


SEVERAL_CELLS = st.lists(st.sampled_from(["a", "b", "3", None, 3, 3.0, 0.5, True, float("nan"), b"a"]), max_size=4)


@given(st.lists(st.tuples(SEVERAL_CELLS, st.sampled_from([list, tuple, deque])) | CELLS, min_size=1, max_size=4))
@settings(deadline=None)
def test_multi_valued_cells_do_not_depend_on_other_rows(cells):
    cells = [cell[1](cell[0]) if isinstance(cell, tuple) else cell for cell in cells]
    together = bags(rows_to_frame([{"x": cell} for cell in cells], SEVERAL))
    assert together == [bags(rows_to_frame({"x": cell}, SEVERAL))[0] for cell in cells]
    for cell, found in zip(cells, together, strict=True):
        if isinstance(cell, list | tuple | deque):
            assert found == [text for one in cell if (text := plain_text(plain_cell(one)))]


@pytest.mark.parametrize(
    "cell",
    [
        "v|w|y", ["v", "w", "y"], ("v", "w", "y"), {"y", "w", "v"}, frozenset("vwy"), np.array(["v", "w", "y"]),
        np.array(["v", "w", "y"], object), pl.Series(["v", None, "w", "y"]), pd.Series(["v", "w", pd.NA, "y"]),
        [b"v", np.str_("w"), np.bytes_(b"y")], b"v|w|y",
    ],
)  # fmt: skip
def test_multi_valued_cells_of_any_type(cell):
    rows = [{"x": cell}, {"x": None}, {"x": ["a", 3.0]}, {"x": float("nan")}, {"x": "a|b"}]
    expected = [["v", "w", "y"], [], ["a", "3"], [], ["a", "b"]]
    assert bags(rows_to_frame(rows, SEVERAL)) == expected
    assert bags(rows_to_frame(pd.DataFrame({"x": [row["x"] for row in rows]}), SEVERAL)) == expected


def test_a_pandas_frame_with_lists_from_parquet(tmp_path):
    frame = pl.DataFrame({"x": [["a", "b"], [], None, ["c"]]})
    frame.write_parquet(tmp_path / "rows.parquet")
    assert bags(rows_to_frame(pd.read_parquet(tmp_path / "rows.parquet"), SEVERAL)) == [["a", "b"], [], [], ["c"]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float64(4.0), "4"), (np.float32(0.5), "0.5"), (np.int8(-3), "-3"), (np.True_, "True"),
        (Decimal("4.00"), "4"), (Decimal("1E+3"), "1000"), (Decimal("-0.0"), "0"), (Decimal("0.10"), "0.1"),
        (b"caf\xc3\xa9", "café"), (np.bytes_(b"a"), "a"), (np.str_("a"), "a"), (memoryview(b"a"), "a"),
        (np.timedelta64(5, "D"), "P5D"), (np.datetime64(5, "h"), "1970-01-01 05:00:00"), (torch.tensor(3), "3"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"), (2**80, str(2**80)), (np.array(3.0), "3"),
        (pd.Timestamp("2024-03-05"), "2024-03-05 00:00:00"), (np.ma.masked, ""), (pd.NA, ""), (pd.NaT, ""),
    ],
)  # fmt: skip
def test_values_of_other_libraries(value, text):
    for rows in ([{"x": value}], [{"x": value}, {"x": "word"}], [{"x": value}, {"x": 1}]):
        assert as_text(rows_to_frame(rows, SINGLE)["x"])[0] == text


@pytest.mark.parametrize(
    ("cell", "what"),
    [
        (object(), "a object"), (1j, "a complex"), ({"a": 1}, "a dict"), (b"\xff", "not UTF-8"), ([[1]], "a list"),
        (["a"], r"\['a'\]; expected one value"),
    ],
)  # fmt: skip
def test_invalid_cells_are_reported_with_row_and_column(cell, what):
    with pytest.raises(DataError, match=f"column 'x': row 1 holds .*{what}"):
        rows_to_frame([{"x": "a"}, {"x": cell}], SINGLE)


def test_pandas_columns_may_have_numbers_as_names():
    schema = Schema(fields=(Field(name="0"),), label=Label(column="clicked"))
    assert rows_to_frame(pd.DataFrame([["a"], ["b"]]), schema)["0"].to_list() == ["a", "b"]


def test_columns_of_numbers_stay_numbers():
    for values in ([1, None], [0.5, None], [True, None]):
        assert rows_to_frame([{"x": value} for value in values], SINGLE)["x"].to_list() == values
    assert rows_to_frame(pd.DataFrame({"x": [3.0, None]}), SINGLE)["x"].to_list() == [3, None]


def test_a_float32_is_written_as_in_a_float32_column():
    column = as_text(pl.Series([0.1, 2.7], dtype=pl.Float32)).to_list()
    for kind in (np.float32, torch.tensor):
        assert [plain_text(plain_cell(kind(value))) for value in (0.1, 2.7)] == column == ["0.1", "2.7"]
