import json

import numpy as np
import polars as pl

from thresher.export.predictor import load_bundle


def test_predict_gives_the_predictors_probabilities(finished, thresher, tmp_path):
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


def test_predict_names_what_is_wrong(finished, refused, tmp_path):
    bundle = finished.out / "bundles" / "50"
    rows = tmp_path / "rows.csv"
    rows.write_text("user_id,itm_id,price\nu1,i1,2\n")
    assert "item_id" in refused("predict", bundle, rows)
    assert "absent.csv" in refused("predict", bundle, tmp_path / "absent.csv")
    assert "bundle.json" in refused("predict", tmp_path, rows)
    out = tmp_path / "probabilities.csv"
    refused("predict", bundle, rows, "--out", out)
    assert not out.exists()
    damaged = bundle / "network.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\x01")
    assert "damaged" in refused("predict", bundle, finished.source)


def test_export_takes_a_bundle_out_of_a_run(finished, thresher, refused, tmp_path):
    out = tmp_path / "small"
    result = thresher("export", finished.out, "--budget", "50", "--out", out, "--json")
    assert json.loads(result.stdout)["num_parameters"] == 50
    source = finished.out / "bundles" / "50"
    np.testing.assert_array_equal(
        load_bundle(out).predict(finished.source), load_bundle(source).predict(finished.source)
    )
    assert "already exists" in refused("export", finished.out, "--budget", "50", "--out", out)
    assert thresher("export", finished.out, "--budget", "20%", "--out", out, "--force").exit_code == 0
    assert load_bundle(out).bundle.num_parameters > 50
    assert "it has: 20%, 50" in refused("export", finished.out, "--budget", "7k", "--out", tmp_path / "other")


def test_export_without_a_budget_takes_the_best_on_validation(finished, thresher, tmp_path):
    thresher("export", finished.out, "--out", tmp_path / "best")
    results = json.loads((finished.out / "results.json").read_text())
    best = max(results["points"], key=lambda point: point["validation_auc"])
    assert load_bundle(tmp_path / "best").bundle.num_parameters == best["num_parameters"]
