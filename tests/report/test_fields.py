from types import SimpleNamespace

import numpy as np
import pytest

from thresher.data.schema import Field, Label, Schema
from thresher.errors import ThresherError
from thresher.report.fields import MAX_FIELDS, FieldSummary, plot_kept_fields, plot_table, summarise_fields


def kept(number: int, **more) -> FieldSummary:
    sizes = {"num_features": number + 1, "num_kept": number, "num_parameters": 5 * number, "mean_size": 5.0}
    return FieldSummary(table="embedding", field=f"field {number}", **sizes, **more)


def statistics(num_fields: int, unknown: float = 0.1):
    fields = tuple(
        SimpleNamespace(name=f"field {at}", num_features=at + 1, unknown_share={"test": unknown})
        for at in range(num_fields)
    )
    return SimpleNamespace(
        fields=fields, num_rows={"train": 8, "test": 2}, num_features=99, frequency_curve=((1, 50), (10, 5), (99, 0))
    )


@pytest.mark.parametrize("more", [{}, {"storage_bytes": 12_000}])
def test_every_field_is_drawn_once_with_bytes_if_known(tmp_path, more):
    png, svg = plot_kept_fields([kept(at, **more) for at in range(4)], tmp_path / "figure")
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    assert all(text.count(f">field {at}<") == 1 for at in range(4))
    assert "6 of 10 features kept" in text
    assert ("stored (KB)" in text) == bool(more)


def test_only_the_largest_fields_are_drawn(tmp_path):
    _, svg = plot_kept_fields([kept(at) for at in range(MAX_FIELDS + 7)], tmp_path / "figure")
    text = svg.read_text()
    assert ">field 6<" not in text  # the smallest go
    assert f">field {MAX_FIELDS}<" in text
    assert f"the {MAX_FIELDS} largest of {MAX_FIELDS + 7} fields" in text


@pytest.mark.parametrize("unknown", [0.0, 0.1, 1.0])
def test_plot_table_with_and_without_unknown_values(tmp_path, unknown):
    _, svg = plot_table(statistics(3, unknown), tmp_path / "figure")
    text = svg.read_text()
    assert "10 rows, 3 fields, 99 features" in text
    assert ">field 2<" in text


def test_plot_without_fields_is_an_error(tmp_path):
    with pytest.raises(ThresherError, match="no field to draw"):
        plot_kept_fields([], tmp_path / "figure")


@pytest.mark.parametrize("num_tables", [None, 1, 2])
def test_kept_features_entries_and_bytes_of_each_field(num_tables):
    schema = Schema(fields=(Field(name="a", size=3), Field(name="b", size=2)), label=Label(column="y"))
    sizes = np.array([4, 0, 2, 0, 0])
    tables = num_tables or 1
    first, second = summarise_fields(schema, sizes if num_tables is None else np.stack([sizes] * tables), "t", 60)
    assert (first.field, first.num_features, first.num_kept, first.num_parameters) == ("a", 3, 2 * tables, 6 * tables)
    assert (first.mean_size, first.storage_bytes) == (3.0, 60)
    assert (second.num_features, second.num_kept, second.mean_size, second.storage_bytes) == (2, 0, 0.0, 0)
