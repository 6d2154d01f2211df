import json

import pytest

from thresher.data.schema import DenseColumn, Field, FileFormat, Label, Schema
from thresher.errors import DataError, FormatError


def schema() -> Schema:
    return Schema(
        fields=(Field(name="a", size=3), Field(name="b", size=5, column="raw_b", transform="log2", shift=2.5)),
        label=Label(column="click", positive=("yes",)),
        dense=(DenseColumn(name="price", mean=1.0, scale=2.0),),
        file_format=FileFormat(delimiter="\t", columns=("click", "a", "raw_b", "price")),
    )


def test_offsets_are_running_sums_of_sizes() -> None:
    assert schema().field_offsets == (0, 3)
    assert schema().num_features == 8
    assert schema().field_names == ("a", "b")


def test_json_round_trip() -> None:
    assert Schema.from_json(schema().to_json()) == schema()


def test_damaged_or_newer_json_raises() -> None:
    with pytest.raises(FormatError, match="damaged"):
        Schema.from_json("{")
    newer = json.loads(schema().to_json()) | {"version": 99}
    with pytest.raises(FormatError, match="version 99"):
        Schema.from_json(json.dumps(newer))
    odd = json.loads(schema().to_json())
    odd["fields"][0]["colour"] = "red"
    with pytest.raises(FormatError, match="colour"):
        Schema.from_json(json.dumps(odd))


def test_two_fields_with_one_name_raise() -> None:
    with pytest.raises(DataError, match="'a'"):
        Schema(fields=(Field(name="a", size=1), Field(name="a", size=1)), label=Label(column="y"))
