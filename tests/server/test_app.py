from io import BytesIO

import numpy as np
import polars as pl
import pytest

from thresher.server.decoding import FILE, PARQUET, STREAM
from thresher.serving.predictor import load_bundle

ODD = [("Nowhere", 99, None, [], None), ("", "7", "tablet", "drama|new", "12"), (None, 3.0, "phone", None, -4)]


@pytest.fixture
def rows(row):
    return [row, *(dict(zip(row, values, strict=True)) for values in ODD)]


@pytest.fixture(scope="module")
def predictors(bundle_folders):
    return {name: load_bundle(folder) for name, folder in bundle_folders.items()}


@pytest.mark.parametrize("name", ["small", "attention"])
def test_probabilities_equal_those_of_predictor(client, predictors, rows, name):
    status, found = client.post(f"/predict?bundle={name}", rows)
    assert (status, found["bundle"]) == (200, name)
    np.testing.assert_allclose(found["probabilities"], predictors[name].predict(rows), atol=1e-6)
    status, found = client.post(f"/predict?bundle={name}", rows[1])
    assert found == {"bundle": name, "probability": pytest.approx(predictors[name].predict(rows[1]), abs=1e-6)}


def test_the_default_bundle_and_one_that_does_not_exist(client, row):
    assert client.post("/predict", row)[1]["bundle"] == "small"
    status, found = client.post("/predict?bundle=other", row)
    assert (status, found["error"]) == (404, "no bundle 'other'; the bundles are small, attention")


def encoded(frame, kind):
    out = BytesIO()
    {STREAM: frame.write_ipc_stream, FILE: frame.write_ipc, PARQUET: frame.write_parquet}[kind](out)
    return out.getvalue()


def decoded(body, kind):
    return {STREAM: pl.read_ipc_stream, FILE: pl.read_ipc, PARQUET: pl.read_parquet}[kind](BytesIO(body))


@pytest.mark.parametrize("kind", [STREAM, FILE, PARQUET])
def test_bulk_formats(client, predictors, row, kind):
    frame = pl.DataFrame([{**row, "other": 1}] * 3).with_columns(city=pl.Series(["Ulm", None, "Köln"]))
    expected = predictors["small"].predict(frame)
    status, found = client.post("/predict", encoded(frame, kind), content_type=kind)
    assert status == 200
    np.testing.assert_allclose(decoded(found, kind)["probability"], expected, atol=1e-6)
    as_json = client.post("/predict", encoded(frame, kind), content_type=kind, accept="application/json")[1]
    np.testing.assert_allclose(as_json["probabilities"], expected, atol=1e-6)
    many = encoded(pl.concat([frame] * 20, rechunk=True), kind)
    assert client.post("/predict", many, content_type=kind)[0] == 413
    for body in (b"", b"PAR1", b"ARROW1", encoded(frame, kind)[:-30], encoded(frame.drop("age"), kind)):
        status, found = client.post("/predict", body, content_type=kind)
        assert status in (400, 422), found
    assert found["column"] == "age"


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"price": "abc"}, "price"),
        ({"price": [1]}, "price"),
        ({"device": {"a": 1}}, "device"),
        ({"city": ["Köln", "Ulm"]}, "city"),
        ({"genres": [{"a": 1}]}, "genres"),
    ],
)
def test_bad_values_name_column_and_row(client, row, change, column):
    status, found = client.post("/predict", [row, {**row, **change}])
    assert (status, found["column"], found["row"]) == (422, column, 1)
    assert "Traceback" not in found["error"]


def test_a_column_that_no_row_has(client, row):
    del row["age"]
    status, found = client.post("/predict", row)
    assert (status, found["column"]) == (422, "age")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 10_000, b"NaN", b'{"a": 1e999}'])
def test_bodies_that_are_not_json(client, body):
    status, found = client.post("/predict", body)
    assert (status, list(found)) == (400, ["error"])


@pytest.mark.parametrize("body", [3, "text", [3], [[]], True])
def test_json_that_is_no_row(client, body):
    assert client.post("/predict", body)[0] == 422


def test_limits_of_rows_bytes_and_kinds(client, row):
    assert client.post("/predict", [row] * 51)[0] == 413
    assert client.post("/predict", [row] * 50)[0] == 200
    status, found = client.post("/predict", b" " * 20_001)
    assert (status, found["error"]) == (413, "the body is larger than 20,000 bytes. Send fewer rows.")
    assert client.post("/predict", b"<a/>", content_type="text/xml")[0] == 415
    assert client.ask("GET", "/predict")[0] == 405
    assert client.ask("GET", "/nothing")[:2] == (404, {"error": "Not Found"})


def test_ranking_equals_top_k(client, predictors, rows):
    rows = [{**row, "user": f"u{at % 2}", "item": at} for at, row in enumerate(rows)]
    status, found = client.post("/rank", {"rows": rows, "k": 1, "group": "user", "keep": ["item"]})
    probabilities = predictors["small"].predict(rows)
    best = [max(range(at, 4, 2), key=lambda place: probabilities[place]) for at in (0, 1)]
    assert status == 200
    assert [(row["row"], row["user"], row["item"]) for row in found["rows"]] == [
        (place, f"u{place % 2}", place) for place in best
    ]
    body = encoded(pl.DataFrame([{**row, "genres": None, "price": 1} for row in rows], strict=False), PARQUET)
    reply = client.post("/rank?k=2&group=user&keep=item", body, content_type=PARQUET)[1]
    assert decoded(reply, PARQUET).columns == ["row", "user", "item", "probability"]
    for change in ({"k": 0}, {"k": "x"}, {"keep": 3}, {"group": "nobody"}, {"rows": 3}):
        assert client.post("/rank", {"rows": rows, **change})[0] == 422


def test_explained_rows(client, predictors, row):
    row |= {"city": "Nowhere", "device": None}
    found = client.post("/predict?explain=true", row)[1]
    inputs = {each["name"]: each for each in found["inputs"]}
    assert {name: each["state"] for name, each in inputs.items()} == {
        "city": "unknown", "age": "known", "device": "missing", "genres": "known", "price": "number",
    }  # fmt: skip
    assert (inputs["city"]["value"], inputs["city"]["contribution"]) == ("Nowhere", 0)

    def log_odds(row):
        probability = predictors["small"].predict(row)
        return np.log(probability / (1 - probability))

    for change in ({"age": "never"}, {"price": None}, {"genres": []}):
        expected = log_odds(row) - log_odds({**row, **change})
        assert inputs[next(iter(change))]["contribution"] == pytest.approx(expected, abs=1e-4)


def test_descriptions(client, row):
    assert client.get("/health") == {"status": "ok"}
    assert client.get("/ready")["ready"] is True
    bundles = client.get("/bundles")
    assert (bundles["default"], [each["model"] for each in bundles["bundles"]]) == ("small", ["deepfm", "autoint"])
    schema = client.get("/schema")
    assert [(each["column"], each["kind"]) for each in schema["inputs"]] == [
        ("city", "text"), ("age", "text"), ("device", "text"), ("genres", "list"), ("price", "number"),
    ]  # fmt: skip
    assert client.post("/predict", schema["example"])[0] == 200
    document = client.get("/openapi.json")
    assert set(document["paths"]) == {
        "/predict", "/rank", "/health", "/ready", "/metrics", "/bundles", "/schema",
    }  # fmt: skip
    assert list(document["components"]["schemas"]["row-small"]["properties"]) == list(row)
    for path in ("/", "/docs", "/static/page.js", "/static/docs.js", "/static/style.css"):
        status, content, headers = client.ask("GET", path)
        assert (status, bool(content)) == (200, True)
        assert "default-src 'none'" in headers["content-security-policy"]


def test_metrics_count_requests_rows_and_unknown_values(client, row):
    def numbers():
        lines = client.get("/metrics").decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    before = numbers()
    client.post("/predict", [row, {**row, "city": "Nowhere", "age": -1}])
    client.post("/predict", b"{")
    after = numbers()

    def grown(name):
        return after[name] - before.get(name, 0)

    assert grown('thresher_requests_total{endpoint="/predict",status="400"}') == 1
    assert grown('thresher_rows_total{bundle="small"}') == 2
    assert grown('thresher_unknown_values_total{bundle="small"}') == 2
    assert after["thresher_resident_memory_bytes"] > 1e6
