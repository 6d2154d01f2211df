"""Bulk bodies are read in a process of their own."""

from io import BytesIO

import polars as pl
import pytest

from thresher.errors import DataError
from thresher.server.decoding import FILE, PARQUET, STREAM, encode_frame
from thresher.server.frame_reader import FrameReader
from thresher.server.replies import RequestError

ROWS = pl.DataFrame({"a": ["x", None, "ü"], "b": [1, 2, 3], "other": [0.5, 1.5, 2.5]})


@pytest.fixture
def reader():
    reader = FrameReader()
    yield reader
    reader.close()


@pytest.mark.parametrize("kind", [STREAM, FILE, PARQUET])
def test_the_needed_columns_arrive_as_they_were_sent(reader, kind):
    assert reader.read(encode_frame(ROWS, kind), kind, ["b", "a"], 3).equals(ROWS.select("b", "a"))


def test_errors_of_the_reader_are_those_of_the_server(reader):
    body = encode_frame(ROWS, PARQUET)
    with pytest.raises(RequestError, match="3 rows; at most 2") as found:
        reader.read(body, PARQUET, ["a"], 2)
    assert found.value.status == 413
    with pytest.raises(DataError, match="'missing'"):
        reader.read(body, PARQUET, ["missing"], 3)
    with pytest.raises(RequestError, match="not readable as") as found:
        reader.read(body[:-20], PARQUET, ["a"], 3)
    assert found.value.status == 400


def test_a_body_that_ends_the_reader_is_refused_and_the_next_one_is_read(reader):
    body = encode_frame(ROWS, PARQUET)
    with pytest.raises(RequestError, match="has ended") as found:
        reader.read(body, PARQUET, ["a"], None)  # not a number of rows: the process ends with an exception
    assert found.value.status == 400
    assert reader.read(body, PARQUET, ["a"], 3).equals(pl.read_parquet(BytesIO(body), columns=["a"]))
