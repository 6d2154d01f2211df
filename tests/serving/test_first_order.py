import numpy as np
import pytest

from thresher.errors import ConfigError
from thresher.serving.bundle import open_bundle, save_bundle
from thresher.serving.first_order import FIRST_ORDER, share_first_order_
from thresher.serving.predictor import load_bundle


@pytest.fixture
def bundle(tmp_path, make_encoder, make_model):
    encoder = make_encoder()
    model, config = make_model(encoder, "fm", density=0.02)
    return open_bundle(save_bundle(tmp_path / "all", model, config, encoder)), encoder


def test_weights_that_are_not_kept_become_the_mean_of_their_field(bundle):
    opened, encoder = bundle
    schema, counts = encoder.schema, np.arange(1, encoder.schema.num_features + 1)
    before = opened.tables[FIRST_ORDER].to_dense()[:, 0].astype(np.float64)
    bias = float(opened.model.linear_term.bias.detach())
    tables = share_first_order_(opened.model, opened.tables, schema, counts, 0)
    assert tables[FIRST_ORDER].num_parameters == 0
    means = [
        np.average(before[first : first + size], weights=counts[first : first + size])
        for first, size in zip(schema.field_offsets, schema.field_sizes, strict=True)
    ]
    assert float(opened.model.linear_term.bias.detach()) == pytest.approx(bias + sum(means), abs=1e-5)


def test_a_shared_bundle_is_smaller_and_raw_rows_give_the_same_as_ids(bundle, tmp_path, raw_frame):
    opened, encoder = bundle
    counts = np.arange(1, encoder.schema.num_features + 1)
    share_first_order_(opened.model, opened.tables, encoder.schema, counts, 3)
    folder = save_bundle(tmp_path / "few", opened.model, opened.model_config, encoder, searched=opened.searched)
    predictor = load_bundle(folder)
    assert any(not vocabulary.complete for vocabulary in predictor.encoder.vocabularies)
    frame = raw_frame(80)
    ids = encoder.encode_frame(frame).ids
    np.testing.assert_allclose(predictor.predict(frame), predictor.predict_ids(ids), atol=1e-6)


def test_a_model_without_first_order_weights_is_refused(bundle):
    opened, encoder = bundle
    with pytest.raises(ConfigError, match="no first-order weights"):
        share_first_order_(opened.model, {}, encoder.schema, np.ones(encoder.schema.num_features), 1)
