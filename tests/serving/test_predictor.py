import json
import threading
from types import MappingProxyType

import numpy as np
import polars as pl
import pytest
import torch

from thresher.errors import DataError
from thresher.serving.bundle import save_bundle
from thresher.serving.predictor import Predictor, load_bundle
from thresher.serving.ranking import top_k
from thresher.serving.request_rows import read_json_lines


@pytest.fixture(scope="module", params=[0, 2], ids=["ids", "ids+dense"])
def served(request, tmp_path_factory, make_encoder, make_model, raw_frame):
    """A predictor, raw rows, and the probabilities of the trained model."""
    encoder = make_encoder(request.param)
    model, config = make_model(encoder, "deepfm")
    folder = save_bundle(tmp_path_factory.mktemp("bundle"), model, config, encoder)
    frame = raw_frame(50, request.param)
    rows = encoder.encode_frame(frame)
    inputs = [torch.from_numpy(part) for part in (rows.ids, rows.dense) if part is not None]
    with torch.no_grad():
        expected = torch.sigmoid(model(*inputs)).numpy()
    return load_bundle(folder), frame, expected


def test_rows_of_any_type_give_the_probabilities_of_the_trained_model(served):
    predictor, frame, expected = served
    dicts = frame.to_dicts()
    for rows in (frame, dicts, tuple(dicts), frame.select(reversed(frame.columns)).to_pandas()):
        np.testing.assert_allclose(predictor.predict(rows), expected, atol=1e-6)
    one = predictor.predict(dicts[3])
    assert isinstance(one, float)
    assert one == pytest.approx(expected[3], abs=1e-6)


def test_files_of_any_format_give_the_same_probabilities(served, tmp_path):
    predictor, frame, expected = served
    frame.write_csv(tmp_path / "rows.csv")
    frame.write_csv(tmp_path / "rows.tsv", separator="\t")
    frame.write_csv(tmp_path / "rows.txt", separator=";")
    frame.write_parquet(tmp_path / "rows.parquet")
    frame.write_ndjson(tmp_path / "rows.jsonl")
    for path in tmp_path.iterdir():
        np.testing.assert_allclose(predictor.predict(path), expected, atol=1e-6, err_msg=path.name)
    both = predictor.predict(str(tmp_path / "rows.[ct]s?"))
    np.testing.assert_allclose(both, np.concatenate([expected, expected]), atol=1e-6)


def test_a_file_may_have_another_delimiter_than_in_training(served, tmp_path):
    predictor, frame, expected = served
    for sign in ";|\t":
        frame.write_csv(tmp_path / "rows.csv", separator=sign)
        np.testing.assert_allclose(predictor.predict(tmp_path / "rows.csv"), expected, atol=1e-6)


def test_read_only_encoded_rows_are_predicted_without_a_warning(served):
    predictor, frame, expected = served
    rows = predictor.encoder.encode_frame(frame)
    rows.ids.flags.writeable = False  # as a memory map is
    np.testing.assert_allclose(predictor.predict_rows(rows), expected, atol=1e-6)


def test_a_file_without_header_has_the_columns_of_training_with_or_without_label(served, tmp_path):
    predictor, frame, expected = served
    frame = frame.drop("extra")
    frame.write_csv(tmp_path / "unlabelled.csv", include_header=False)
    frame.insert_column(0, pl.Series("clicked", [1] * 50)).write_csv(tmp_path / "labelled.csv", include_header=False)
    for path in tmp_path.iterdir():
        np.testing.assert_allclose(predictor.predict(path), expected, atol=1e-6, err_msg=path.name)


def test_unseen_values_are_unknown(served):
    predictor, frame, _ = served
    row = frame.to_dicts()[0]
    strange = [row | {"city": value} for value in ("Nowhere", "never seen", "\0", "Köln ")]
    assert len(set(predictor.predict(strange).tolist())) == 1
    assert predictor.predict([row | {"city": None}]) == predictor.predict([row | {"city": ""}])


def test_a_field_with_only_unknown_values_is_warned_about_once(tmp_path, make_encoder, make_model, raw_frame):
    encoder = make_encoder()
    predictor = load_bundle(save_bundle(tmp_path, *make_model(encoder), encoder))
    strange = raw_frame(100).with_columns(city=pl.lit("KÖLN"))
    predictor.predict(strange.head(99))
    predictor.predict(strange.with_row_index().with_columns(city=pl.when(pl.col("index") > 98).then(pl.lit("Ulm"))))
    with pytest.warns(UserWarning, match=r"all 100 values of column 'city' are unknown .*'KÖLN', .* 'Köln'\. Write"):
        predictor.predict(strange)
    predictor.predict(strange)


def test_missing_cells_do_not_prevent_the_warning_about_unknown_values(tmp_path, make_encoder, make_model, raw_frame):
    encoder = make_encoder()
    predictor = load_bundle(save_bundle(tmp_path, *make_model(encoder), encoder))
    city = pl.Series("city", [None, "KÖLN", None, None] * 100)
    with pytest.warns(UserWarning, match="all 100 values of column 'city' are unknown .*, for example 'KÖLN'"):
        predictor.predict(raw_frame(400).with_columns(city))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.rename({"city": "citty"}), "no column 'city'; did you mean 'citty'"),
        (lambda frame: frame.drop("age").to_dicts(), "no column 'age'"),
        (lambda frame: frame.drop("kind").to_dicts()[0], "no column 'kind'"),
        (lambda frame: frame.drop("kind").to_pandas(), "no column 'kind'"),
        (lambda frame: frame.to_pandas().rename(columns={"extra": "kind"}), "2 columns are called 'kind'; keep one"),
        (lambda frame: [1, 2], "row 0 is a int"),
        (lambda frame: 3, "got a int"),
        (lambda frame: {}, "no column 'city'; the columns are: none"),
        (lambda frame: [{}], "no column 'city'; the columns are: none"),
        (lambda frame: pl.DataFrame(), "no column 'city'; the columns are: none"),
        (lambda frame: pl.DataFrame().to_pandas(), "no column 'city'; the columns are: none"),
        (lambda frame: frame.lazy(), "got a LazyFrame"),
    ],
)
def test_missing_columns_are_named(served, change, message):
    predictor, frame, _ = served
    with pytest.raises(DataError, match=message):
        predictor.predict(change(frame))


def test_errors_in_files_name_file_and_line(served, tmp_path):
    predictor, frame, _ = served
    frame.drop("age").write_csv(tmp_path / "rows.csv")
    with pytest.raises(DataError, match=r"rows\.csv: no column 'age'"):
        predictor.predict(tmp_path / "rows.csv")
    (tmp_path / "rows.jsonl").write_text(json.dumps(frame.to_dicts()[0]) + "\n\n{broken\n")
    with pytest.raises(DataError, match=r"rows\.jsonl:3: not a JSON object"):
        predictor.predict(tmp_path / "rows.jsonl")
    with pytest.raises(DataError, match="no such file"):
        predictor.predict(tmp_path / "absent.csv")


def test_an_invalid_number_is_reported_with_file_line_and_column(tmp_path, make_encoder, make_model, raw_frame):
    encoder = make_encoder(2)
    model, config = make_model(encoder, "deepfm")
    predictor = load_bundle(save_bundle(tmp_path / "bundle", model, config, encoder))
    texts = raw_frame(50, 2).with_columns(pl.col("x1").cast(pl.String))
    frame = texts.with_columns(pl.when(pl.col("extra") == 7).then(pl.lit("a lot")).otherwise(pl.col("x1")).alias("x1"))
    frame.write_csv(tmp_path / "rows.csv")
    frame.write_parquet(tmp_path / "rows.parquet")
    lines = [json.dumps(row) for row in frame.to_dicts()]
    (tmp_path / "rows.jsonl").write_text("\n\n".join(lines))
    for name, line in (("rows.csv", 9), ("rows.parquet", 8), ("rows.jsonl", 15)):
        for ask in (predictor.predict, lambda path: top_k(predictor, path, 3)):
            with pytest.raises(DataError, match=rf"{name}:{line}: column 'x1': 'a lot' is not a number"):
                ask(tmp_path / name)
    for rows in (frame, frame.to_dicts(), frame.to_pandas()):
        with pytest.raises(DataError, match=r"column 'x1': 'a lot' in row 7 is not a number"):
            predictor.predict(rows)
    with pytest.raises(DataError, match=r"stdin:2: column 'x1'"):
        list(read_json_lines(["\n", lines[7]], encoder.schema))


def test_no_rows_give_no_probabilities(served):
    predictor, frame, _ = served
    assert predictor.predict([]).shape == (0,)
    assert predictor.predict(frame.head(0)).shape == (0,)
    assert predictor.predict(frame.head(0).to_pandas()).shape == (0,)


def test_any_mapping_is_one_row(served):
    predictor, frame, expected = served
    assert predictor.predict(MappingProxyType(frame.to_dicts()[3])) == pytest.approx(expected[3], abs=1e-6)


def test_predictions_do_not_depend_on_the_batch_size(served, monkeypatch):
    predictor, frame, expected = served
    monkeypatch.setattr("thresher.serving.predictor.BATCH_ROWS", 7)
    np.testing.assert_allclose(predictor.predict(frame), expected, atol=1e-6)


def test_threads_can_share_a_predictor(served):
    predictor, frame, expected = served
    results = []

    def serve():
        results.extend(predictor.predict(frame) for _ in range(5))

    threads = [threading.Thread(target=serve) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 30
    assert all(np.allclose(result, expected, atol=1e-6) for result in results)


def test_loading_twice_gives_two_independent_predictors(served):
    predictor, frame, expected = served
    again = Predictor.load(predictor.bundle.folder, verify=False)
    np.testing.assert_allclose(again.predict(frame), expected, atol=1e-6)


def test_multi_valued_fields_are_pooled_as_in_training(tmp_path, make_encoder, make_model, raw_frame):
    from dataclasses import replace

    from thresher.data.encode.row_encoder import RowEncoder
    from thresher.data.table import Bag

    plain = make_encoder()
    fields = (*plain.schema.fields[:2], replace(plain.schema.fields[2], pooling="mean", separator="|"))
    encoder = RowEncoder(replace(plain.schema, fields=fields), plain.vocabularies)
    model, config = make_model(plain)
    predictor = load_bundle(save_bundle(tmp_path / "bundle", model, config, encoder))
    frame = raw_frame(3).with_columns(kind=pl.Series(["a|b|b", "", "never"]))
    expected_bags = torch.tensor([37, 38, 38, 36]), torch.tensor([0, 3, 3, 4])
    ids = torch.from_numpy(encoder.encode_frame(frame).ids)
    with torch.no_grad():
        expected = torch.sigmoid(model(ids, None, (Bag(2, *expected_bags, "mean"),))).numpy()
    np.testing.assert_allclose(predictor.predict(frame), expected, atol=1e-6)
    lists = [row | {"kind": row["kind"].split("|")} for row in frame.to_dicts()]
    np.testing.assert_allclose(predictor.predict(lists), expected, atol=1e-6)
    one_by_one = [predictor.predict(row) for row in lists]
    np.testing.assert_allclose(one_by_one, expected, atol=1e-6)


def test_repr(served):
    predictor, _, _ = served
    text = repr(predictor)
    assert text.startswith(f"Predictor('{predictor.bundle.folder}', model='deepfm', fields=3, num_parameters=")
    assert text.endswith(f"storage_bytes={predictor.bundle.storage_bytes:,})")
