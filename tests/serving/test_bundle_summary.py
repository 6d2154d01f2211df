import pytest

from thresher.serving.bundle import open_bundle, save_bundle
from thresher.serving.bundle_summary import summarise


@pytest.fixture
def bundle(tmp_path, make_encoder, make_model):
    model, config = make_model(make_encoder(), density=0.1)
    mask = model.embedding.mask()
    assert not mask.any(1).all(), "the test needs dropped features"
    return open_bundle(save_bundle(tmp_path / "bundle", model, config, make_encoder())), mask


def test_every_field_is_counted(bundle):
    opened, mask = bundle
    summary = summarise(opened)
    first = 0
    for field, described in zip(opened.encoder.schema.fields, summary.fields_of("embedding"), strict=True):
        own = mask[first : first + field.size]
        assert described.field == field.name
        assert described.num_parameters == own.sum()
        assert described.num_kept == own.any(1).sum()
        assert described.num_dropped == field.size - own.any(1).sum()
        assert described.mean_size * described.num_kept == pytest.approx(int(own.sum()))
        first += field.size


def test_tables_are_sorted_by_size_and_bytes_of_fields_add_up(bundle):
    opened, mask = bundle
    summary = summarise(opened)
    sizes = [table.storage_bytes for table in summary.tables]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == opened.storage_bytes
    for table in summary.tables:
        parts = sum(field.storage_bytes for field in summary.fields_of(table.table))
        assert parts == pytest.approx(table.storage_bytes, abs=len(summary.fields))
    embedding = next(table for table in summary.tables if table.table == "embedding")
    assert embedding.num_dropped == (~mask.any(1)).sum()
