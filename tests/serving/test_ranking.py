import numpy as np
import polars as pl
import pytest

from thresher.errors import DataError
from thresher.serving.bundle import save_bundle
from thresher.serving.predictor import load_bundle
from thresher.serving.ranking import top_k


@pytest.fixture(scope="module")
def predictor(tmp_path_factory, make_encoder, make_model):
    encoder = make_encoder()
    model, config = make_model(encoder)
    return load_bundle(save_bundle(tmp_path_factory.mktemp("bundle"), model, config, encoder))


def expected(predictor, frame, k, group):
    rows = list(zip(range(len(frame)), frame[group].to_list(), predictor.predict(frame).tolist(), strict=True))
    best = []
    for name in dict.fromkeys(frame[group].to_list()):
        best += sorted((row for row in rows if row[1] == name), key=lambda row: (-row[2], row[0]))[:k]
    return best


@pytest.mark.parametrize("k", [1, 3, 100])
def test_the_best_rows_of_each_group_come_first(predictor, raw_frame, k):
    frame = raw_frame(60).with_columns(user=pl.Series(np.random.default_rng(0).choice(list("zyx"), 60)))
    best = top_k(predictor, frame, k, group="user")
    assert best.columns == ["row", "user", "probability"]
    assert best.rows() == expected(predictor, frame, k, "user")


def test_a_file_read_in_chunks_gives_the_same_result(predictor, raw_frame, tmp_path, monkeypatch):
    frame = raw_frame(60).with_columns(user=pl.Series(np.random.default_rng(0).choice(list("zyx"), 60)))
    frame.write_ndjson(tmp_path / "rows.jsonl")
    monkeypatch.setattr("thresher.serving.request_rows.JSON_CHUNK_ROWS", 7)
    best = top_k(predictor, tmp_path / "rows.jsonl", 4, group="user")
    whole = top_k(predictor, frame, 4, group="user")
    assert best["row"].to_list() == whole["row"].to_list()
    np.testing.assert_allclose(best["probability"], whole["probability"], atol=1e-6)


def test_without_group_and_with_a_field_as_group(predictor, raw_frame):
    frame = raw_frame(60)
    probabilities = predictor.predict(frame)
    assert top_k(predictor, frame, 5)["probability"].to_list() == sorted(probabilities.tolist(), reverse=True)[:5]
    assert top_k(predictor, frame.to_dicts(), 1, group="city")["city"].n_unique() == frame["city"].n_unique()


def test_invalid_arguments_are_rejected(predictor, raw_frame):
    with pytest.raises(DataError, match="at least 1"):
        top_k(predictor, raw_frame(3), 0)
    with pytest.raises(DataError, match="no column 'usr'"):
        top_k(predictor, raw_frame(3), 1, group="usr")
    with pytest.raises(DataError, match="rename it"):
        top_k(predictor, raw_frame(3), 1, group="row")
    assert len(top_k(predictor, raw_frame(0), 1)) == 0
