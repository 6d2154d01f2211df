import json

import numpy as np
import polars as pl
import pytest

from thresher.errors import DataError
from thresher.serving.predictor import load_bundle


def test_predict_equals_the_predictor(finished, thresher, tmp_path):
    bundle = finished.out / "bundles" / "50"
    expected = load_bundle(bundle).predict(finished.source)
    printed = thresher("predict", bundle, finished.source)
    assert printed.exit_code == 0
    np.testing.assert_array_equal(np.array(printed.stdout.split(), np.float32), expected)
    out = tmp_path / "probabilities.csv"
    assert thresher("predict", bundle, finished.source, "--out", out).exit_code == 0
    np.testing.assert_array_equal(pl.read_csv(out)["probability"].cast(pl.Float32).to_numpy(), expected)


def test_predict_reads_json_lines_from_stdin(finished, thresher):
    bundle = finished.out / "bundles" / "50"
    rows = [{"user_id": "u1", "item_id": "i2", "price": 3.5}, {"user_id": "never seen", "item_id": None, "price": None}]
    printed = thresher("predict", bundle, "-", stdin="".join(json.dumps(row) + "\n" for row in rows))
    probabilities = [float(line) for line in printed.stdout.split()]
    assert len(probabilities) == 2
    assert all(0 < p < 1 for p in probabilities)


def test_predict_reports_the_share_of_unknown_values(finished, thresher, tmp_path):
    bundle = finished.out / "bundles" / "50"
    frame = pl.read_csv(finished.source).head(10)
    frame = frame.with_columns(user_id=pl.Series(["nobody"] * 6 + frame["user_id"].to_list()[6:]))
    rows, out = tmp_path / "rows.csv", tmp_path / "p.csv"
    frame.write_csv(rows)
    for words in ([], ["--out", out], ["--top-k", "2"]):
        message = thresher("predict", bundle, rows, *words).stderr
        assert "too rare in training): user_id 60%. Is this the right file" in " ".join(message.split())
    assert "unknown to the model" not in thresher("predict", bundle, rows, "--quiet").stderr
    assert "unknown to the model" not in thresher("predict", bundle, finished.source).stderr


@pytest.mark.parametrize("value", [["u1"], {"id": 1}])
def test_lists_in_a_single_valued_column(finished, value):
    good = {"user_id": "u1", "item_id": "i2", "price": 3.5}
    with pytest.raises(DataError, match="column 'user_id': row 1 holds"):
        load_bundle(finished.out / "bundles" / "50").predict([good, {**good, "user_id": value}])


def test_predict_errors(finished, refused, tmp_path):
    bundle = finished.out / "bundles" / "50"
    rows = tmp_path / "rows.csv"
    rows.write_text("user_id,itm_id,price\nu1,i1,2\n")
    assert "item_id" in refused("predict", bundle, rows)
    assert "absent.csv" in refused("predict", bundle, tmp_path / "absent.csv")
    assert "bundle.json" in refused("predict", tmp_path, rows)
    message = refused("predict", finished.out / "bundles" / "7pct", rows)
    assert f"7pct: no such bundle. Found beside it: {finished.out / 'bundles' / '20pct'}, {bundle}" in message
    message = refused("predict", bundle, finished.source, "--out", tmp_path / "p.xlsx")
    assert "unknown suffix .xlsx. Use .csv, .jsonl or .parquet." in message
    out = tmp_path / "probabilities.csv"
    refused("predict", bundle, rows, "--out", out)
    assert not out.exists()
    damaged = bundle / "network.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x01")
    assert "damaged" in refused("predict", bundle, finished.source)


def test_safe_csv_holds_no_formulas(finished, thresher, refused, tmp_path):
    bundle, rows = finished.out / "bundles" / "50", tmp_path / "rows.parquet"
    notes = ["=1+2", "-5", "-5e-3", "@sum", "plain", None, "+x", "\tx", "1=1"]
    frame = pl.read_csv(finished.source).head(9).with_columns(pl.Series("=note", notes))
    lists, categories = pl.concat_list("=note").alias("lists"), pl.col("=note").cast(pl.Categorical).alias("categories")
    frame.with_columns(lists, categories).write_parquet(rows)
    words = ["predict", bundle, rows, "--keep", "=note", "--out"]
    assert thresher(*words, tmp_path / "a.csv", "--safe-csv").exit_code == 0
    written = pl.read_csv(tmp_path / "a.csv", infer_schema=False)
    assert written.columns == ["'=note", "probability"]
    assert written["'=note"].to_list() == ["'=1+2", "-5", "-5e-3", "'@sum", "plain", None, "'+x", "'\tx", "1=1"]
    assert thresher(*words, tmp_path / "b.csv").exit_code == 0
    assert pl.read_csv(tmp_path / "b.csv", infer_schema=False)["=note"].to_list() == notes
    assert "--safe-csv" in refused(*words, tmp_path / "a.parquet", "--safe-csv")
    assert thresher("predict", bundle, rows, "--keep", "lists,categories", "--safe-csv").stdout.splitlines()[1:3] == [
        f"'=1+2,'=1+2,{probability}" if at == 0 else f"-5,-5,{probability}"
        for at, probability in enumerate(written["probability"].head(2))
    ]


def test_predict_reads_parquet_and_keeps_columns(finished, thresher, refused, tmp_path):
    bundle = finished.out / "bundles" / "50"
    frame = pl.read_csv(finished.source).head(40).with_columns(request=pl.int_range(40))
    rows = tmp_path / "rows.parquet"
    frame.write_parquet(rows)
    expected = load_bundle(bundle).predict(frame)
    for name, read in (("a.csv", pl.read_csv), ("a.jsonl", pl.read_ndjson), ("a.parquet", pl.read_parquet)):
        printed = thresher("predict", bundle, rows, "--keep", "request, user_id,request", "--out", tmp_path / name)
        assert printed.exit_code == 0, printed.stderr
        assert f"40 rows → {tmp_path / name}" in printed.stderr
        written = read(tmp_path / name)
        assert written.columns == ["request", "user_id", "probability"]
        assert written["user_id"].to_list() == frame["user_id"].to_list()
        np.testing.assert_array_equal(written["probability"].cast(pl.Float32).to_numpy(), expected)
    shown = thresher("predict", bundle, rows, "--keep", "request").stdout.splitlines()
    assert shown[0] == "request,probability"
    as_json = [json.loads(line) for line in thresher("predict", bundle, rows, "--json").stdout.splitlines()]
    assert np.float32(as_json[3]["probability"]) == expected[3]
    frame.with_columns(at=pl.datetime(2024, 3, 5, 0, 25, 58)).write_parquet(rows)
    assert thresher("predict", bundle, rows, "--keep", "at").stdout.splitlines()[1].startswith("2024-03-05 00:25:58,")
    assert "request" in refused("predict", bundle, rows, "--keep", "reqest")
    assert "name of the output column" in refused("predict", bundle, rows, "--keep", "probability")


def test_predict_streams_in_chunks(finished, thresher, tmp_path, monkeypatch):
    monkeypatch.setattr("thresher.serving.request_rows.JSON_CHUNK_ROWS", 7)
    bundle = finished.out / "bundles" / "50"
    frame = pl.read_csv(finished.source).head(50)
    expected = load_bundle(bundle).predict(frame)
    lines = frame.write_ndjson()
    for name in ("a.csv", "a.parquet", "a.jsonl"):
        out = tmp_path / name
        assert thresher("predict", bundle, "-", "--keep", "price", "--out", out, stdin=lines).exit_code == 0
        read = {"csv": pl.read_csv, "parquet": pl.read_parquet, "jsonl": pl.read_ndjson}[name[2:]]
        np.testing.assert_allclose(read(out)["probability"].to_numpy(), expected, atol=1e-6)


def test_no_output_file_after_a_bad_row(finished, refused, tmp_path, monkeypatch):
    monkeypatch.setattr("thresher.serving.request_rows.JSON_CHUNK_ROWS", 2)
    good = '{"user_id": "u1", "item_id": "i1", "price": 1}\n'
    for name in ("a.csv", "a.parquet"):
        message = refused(
            "predict", finished.out / "bundles" / "50", "-", "--out", tmp_path / name, stdin=good * 4 + "oops\n"
        )
        assert "stdin:5" in message
        assert not (tmp_path / name).exists()


@pytest.mark.parametrize("as_stdin", [False, True])
def test_top_k_of_each_group(finished, thresher, tmp_path, as_stdin):
    bundle = finished.out / "bundles" / "50"
    frame = pl.read_csv(finished.source).head(200)
    rows = tmp_path / "rows.jsonl"
    frame.write_ndjson(rows)
    words = ["predict", bundle, "-" if as_stdin else rows, "--top-k", "2", "--group", "user_id", "--keep", "item_id"]
    printed = thresher(*words, stdin=rows.read_text() if as_stdin else None)
    assert printed.exit_code == 0, printed.stderr
    (tmp_path / "best.csv").write_text(printed.stdout)
    best = pl.read_csv(tmp_path / "best.csv")
    assert best.columns == ["row", "user_id", "item_id", "probability"]
    probabilities = load_bundle(bundle).predict(frame)
    for (user,), own in best.group_by("user_id"):
        of_user = np.flatnonzero((frame["user_id"] == user).to_numpy())
        ranked = of_user[np.argsort(-probabilities[of_user], kind="stable")][:2]
        assert own["row"].to_list() == ranked.tolist()
        assert own["item_id"].to_list() == frame["item_id"].gather(ranked).to_list()
    whole = thresher("predict", bundle, rows, "--top-k", "3", "--json").stdout.splitlines()
    assert [json.loads(line)["row"] for line in whole] == np.argsort(-probabilities, kind="stable")[:3].tolist()


def test_invalid_top_k_and_group(finished, refused):
    bundle = finished.out / "bundles" / "50"
    assert "--top-k" in refused("predict", bundle, finished.source, "--group", "user_id")
    assert "at least 1" in refused("predict", bundle, finished.source, "--top-k", "0")
    message = refused("predict", finished.out, finished.source)
    assert f"is a run. Use one of its bundles: {finished.out / 'bundles' / '20pct'}" in message


def test_output_must_not_be_the_input_file(finished, refused, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text(finished.source.read_text())
    (tmp_path / "link.csv").symlink_to(rows)
    for words in ([rows, "--out", rows], [rows, "--out", tmp_path / "link.csv"], [tmp_path / "r*.csv", "--out", rows]):
        message = refused("predict", finished.out / "bundles" / "50", *words)
        assert "is the input file. Choose another name." in message
    assert rows.read_text() == finished.source.read_text()


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_predict_names_an_empty_file(finished, refused, tmp_path, text):
    rows = tmp_path / "empty.csv"
    rows.write_text(text)
    for words in ([], ["--top-k", "2"]):
        assert f"{rows}:1: the file is empty" in refused("predict", finished.out / "bundles" / "50", rows, *words)


def test_predict_reports_a_file_without_rows(finished, thresher, tmp_path):
    rows = tmp_path / "header.csv"
    rows.write_text("user_id,item_id,price\n")
    for words in ([], ["--keep", "user_id"], ["--top-k", "2"]):
        result = thresher("predict", finished.out / "bundles" / "50", rows, *words)
        assert (result.exit_code, result.stderr.strip()) == (0, "0 rows")
