"""Columns of pandas keep their meaning, with and without pyarrow."""

import ast
import subprocess
import sys
from datetime import date, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from thresher.data.config import DataConfig, FieldConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import build_source
from thresher.data.read.column_values import as_text
from thresher.data.read.data_frames import to_polars
from thresher.errors import DataError

MOMENTS = pd.to_datetime(["2024-03-05 09:30", None, "2024-03-06 00:00"])
COLUMNS = {
    "integers": (pd.Series([1, 2, 3]), pl.Int64, ["1", "2", "3"]),
    "small integers": (pd.Series([1, 2, 3], dtype="uint8"), pl.UInt8, ["1", "2", "3"]),
    "nullable integers": (pd.Series([1, None, 2**62 + 1], dtype="Int64"), pl.Int64, ["1", "", str(2**62 + 1)]),
    "integers with NaN": (pd.Series([1, None, 3]), pl.Int64, ["1", "", "3"]),
    "fractions": (pd.Series([0.5, None, 3]), pl.Float64, ["0.5", "", "3"]),
    "nullable fractions": (pd.Series([0.5, None, 3], dtype="Float32"), pl.Float32, ["0.5", "", "3"]),
    "booleans": (pd.Series([True, False, True]), pl.Boolean, ["True", "False", "True"]),
    "nullable booleans": (pd.Series([True, None, False], dtype="boolean"), pl.Boolean, ["True", "", "False"]),
    "text": (pd.Series(["a", None, "c"]), pl.String, ["a", "", "c"]),
    "string": (pd.Series(["a", None, "c"], dtype="string"), pl.String, ["a", "", "c"]),
    "objects": (pd.Series(["a", None, 3.0], dtype=object), pl.String, ["a", "", "3"]),
    "object integers": (pd.Series([1, None, 3], dtype=object), pl.Int64, ["1", "", "3"]),
    "categories": (pd.Series(["a", None, "c"], dtype="category"), pl.String, ["a", "", "c"]),
    "number categories": (pd.Series([7, None, 5]).astype("category"), pl.Float64, ["7", "", "5"]),
    "intervals": (pd.cut(pd.Series([1, 5, 9]), 3), pl.String, ["(0.992, 3.667]", "(3.667, 6.333]", "(6.333, 9.0]"]),
    "dates": (pd.Series(MOMENTS), pl.Datetime, ["2024-03-05 09:30:00", "", "2024-03-06 00:00:00"]),
    "seconds": (pd.Series(MOMENTS.as_unit("s")), pl.Datetime, ["2024-03-05 09:30:00", "", "2024-03-06 00:00:00"]),
    "time zone": (
        pd.Series(MOMENTS.tz_localize("Europe/Berlin")),
        pl.Datetime,
        ["2024-03-05 09:30:00+01:00", "", "2024-03-06 00:00:00+01:00"],
    ),
    "offset": (
        pd.Series(MOMENTS.tz_localize("+01:00")),
        pl.String,
        ["2024-03-05 09:30:00+01:00", "", "2024-03-06 00:00:00+01:00"],
    ),
    "days": (pd.Series([date(2024, 3, 5), None]), pl.String, ["2024-03-05", ""]),
    "sparse": (pd.Series([0, 0, 3], dtype=pd.SparseDtype("int64")), pl.Int64, ["0", "0", "3"]),
    "arrow": (pd.Series([1, None], dtype="int32[pyarrow]"), pl.Int32, ["1", ""]),
    "arrow text": (pd.Series(["a", None], dtype="string[pyarrow]"), pl.String, ["a", ""]),
    "arrow dates": (pd.Series(MOMENTS).astype("timestamp[us][pyarrow]"), pl.Datetime, None),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_types_of_pandas(name: str) -> None:
    column, kind, texts = COLUMNS[name]
    frame = to_polars(pd.DataFrame({name: column}))
    assert frame.columns == [name]
    assert frame[name].dtype == kind
    expected = COLUMNS["dates"][2] if texts is None else texts
    assert as_text(frame[name]).to_list() == expected


WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
import pandas as pd
from thresher.data.read.column_values import as_text
from thresher.data.read.data_frames import to_polars

columns = {
    "text": pd.Series(["a", None]), "category": pd.Series(["a", None], dtype="category"),
    "nullable": pd.Series([1, None], dtype="Int64"), "flag": pd.Series([True, False]),
    "moment": pd.Series(pd.to_datetime(["2024-03-05", None])), "mixed": pd.Series([1, "a"], dtype=object),
    "zone": pd.Series(pd.to_datetime(["2024-03-05", None]).tz_localize("Europe/Berlin")),
}
frame = to_polars(pd.DataFrame(columns))
print([as_text(column).to_list() for column in frame])
"""


def test_conversion_needs_no_pyarrow() -> None:
    run = subprocess.run([sys.executable, "-c", WITHOUT_PYARROW], capture_output=True, text=True, check=True)
    assert ast.literal_eval(run.stdout) == [
        ["a", ""],
        ["a", ""],
        ["1", ""],
        ["True", "False"],
        ["2024-03-05 00:00:00", ""],
        ["1", "a"],
        ["2024-03-05 00:00:00+01:00", ""],
    ]


def test_lists_are_multi_valued() -> None:
    frame = to_polars(pd.DataFrame({"tags": [["a", "b"], [], None, np.array(["c"])]}))
    assert frame["tags"].to_list() == [["a", "b"], [], None, ["c"]]


def test_names_and_index() -> None:
    frame = pd.DataFrame({0: [1, 2], ("a", "b"): [3, 4]}, index=pd.Index(["u", "v"]))
    assert to_polars(frame).columns == ["0", "('a', 'b')"]
    named = frame.rename_axis(index="user")
    assert to_polars(named).to_dict(as_series=False) == {"0": [1, 2], "('a', 'b')": [3, 4], "user": ["u", "v"]}
    assert to_polars(named, ["user"]).columns == ["user"]
    levels = pd.DataFrame({"x": [1, 2]}, index=pd.MultiIndex.from_tuples([("u", 1), ("v", 2)], names=["user", None]))
    assert to_polars(levels).columns == ["x", "user"]
    assert to_polars(frame.set_axis(["u", "v"], axis=1).rename_axis("u")).columns == ["u", "v"]


def test_objects_in_polars_are_converted() -> None:
    frame = pl.DataFrame({"x": pl.Series([1, "a", None], dtype=pl.Object), "y": [1, 2, 3]})
    assert to_polars(frame).to_dict(as_series=False) == {"x": ["1", "a", None], "y": [1, 2, 3]}


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (
            pl.LazyFrame({"x": [1]}),
            r"expected a pandas or polars data frame, got a LazyFrame. Call its collect\(\) first",
        ),
        ([1, 2], "got a list"),
        (np.ones((2, 2)), "got a ndarray"),
        (pd.Series([1, 2]), "got a Series"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "2 columns are called 'x'; keep one of them"),
        (pd.DataFrame({"x": [1j]}), "column 'x': row 0 holds a complex"),
    ],
    ids=["lazy", "list", "array", "series", "twice", "complex"],
)
def test_other_objects_raise(frame, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        to_polars(frame)


def test_rows_are_encoded_as_from_the_file_of_the_frame(tmp_path: Path) -> None:
    rows = 200
    frame = pd.DataFrame(
        {
            "click": [at % 2 for at in range(rows)],
            "user": pd.Series([at % 7 if at % 5 else None for at in range(rows)], dtype="Int64"),
            "size": pd.Series(["S", "M", "L", None] * (rows // 4), dtype="category"),
            "member": [at % 3 == 0 for at in range(rows)],
            "price": [at / 7 for at in range(rows)],
            "seen": [datetime(2024, 3, 1 + at % 28, at % 24) for at in range(rows)],
        }
    )
    to_polars(frame).write_parquet(path := tmp_path / "rows.parquet")
    source = build_source(DataConfig(paths=(str(path),)))
    table = encode(source, tmp_path / "encoded")
    transforms = {field.name: field.transform for field in table.schema.fields}
    assert transforms == {"user": "none", "size": "none", "member": "none", "price": "quantiles", "seen": "date"}
    encoder = RowEncoder.load(table.folder)
    ids = encoder.encode_frame(frame).ids
    assert np.array_equal(ids, encoder.encode_frame(pl.read_parquet(path)).ids)
    offsets = np.array(table.schema.field_offsets)
    assert (ids != offsets).all(axis=1).mean() > 0.95  # nearly nothing is unknown
    with pytest.raises(DataError, match="no column 'size'"):
        encoder.encode_frame(frame.drop(columns="size"))
    with pytest.raises(DataError, match="got a dict"):
        encoder.encode_frame({"user": [1]})


def test_a_column_of_texts_is_a_field_of_several_values(tmp_path: Path) -> None:
    frame = pl.DataFrame({"click": [0, 1] * 20, "tags": [["a"], ["b", "c"]] * 20})
    frame.write_parquet(path := tmp_path / "rows.parquet")
    fields = (FieldConfig(name="tags", pooling="mean"),)
    table = encode(build_source(DataConfig(paths=(str(path),), label="click", fields=fields)), tmp_path / "encoded")
    bag = RowEncoder.load(table.folder).encode_frame(pd.DataFrame({"tags": [["a", "c"], []]})).bags[0]
    assert np.diff(bag.offsets).tolist() == [2, 0]
