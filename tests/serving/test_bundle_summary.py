import pytest

from thresher.report.fields import summarise_bundle
from thresher.serving.bundle import open_bundle, save_bundle


@pytest.fixture
def bundle(tmp_path, make_encoder, make_model):
    model, config = make_model(make_encoder(), density=0.1)
    mask = model.embedding.mask()
    assert not mask.any(1).all(), "the test needs dropped features"
    return open_bundle(save_bundle(tmp_path / "bundle", model, config, make_encoder())), mask


def test_every_field_is_counted(bundle):
    opened, mask = bundle
    _, fields = summarise_bundle(opened)
    first = 0
    of_embedding = [field for field in fields if field.table == "embedding"]
    for field, described in zip(opened.encoder.schema.fields, of_embedding, strict=True):
        own = mask[first : first + field.size]
        assert described.field == field.name
        assert described.num_parameters == own.sum()
        assert described.num_kept == own.any(1).sum()
        assert described.mean_size * described.num_kept == pytest.approx(int(own.sum()))
        first += field.size


def test_tables_are_sorted_by_size_and_bytes_of_fields_add_up(bundle):
    opened, mask = bundle
    tables, fields = summarise_bundle(opened)
    sizes = [table.storage_bytes for table in tables]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == opened.storage_bytes
    for table in tables:
        parts = sum(field.storage_bytes for field in fields if field.table == table.table)
        assert parts == pytest.approx(table.storage_bytes, abs=len(fields))
    embedding = next(table for table in tables if table.table == "embedding")
    assert embedding.num_dropped == (~mask.any(1)).sum()
