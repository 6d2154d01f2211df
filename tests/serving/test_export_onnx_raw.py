"""The ONNX file takes raw columns and gives the probabilities of `Predictor`."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from raw_columns import VALUES, make_predictor, raw_rows
from thresher.errors import FormatError

pytestmark = pytest.mark.slow  # the exporter takes seconds
pytest.importorskip("onnx", reason="needs the extra onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")


def feeds(session, frame):
    of_type = {"tensor(string)": (pl.String, object), "tensor(double)": (pl.Float64, np.float64)}
    return {
        each.name: frame[each.name].cast(of_type[each.type][0]).to_numpy().astype(of_type[each.type][1])
        for each in session.get_inputs()
    }


@pytest.mark.parametrize(
    ("names", "num_dense", "kind"),
    [(tuple(VALUES), 2, "deepfm"), (("city", "tags", "flags"), 0, "fm"), (("city", "parts", "year"), 0, "lr")],
)
def test_raw_values_give_the_probabilities_of_the_predictor(tmp_path, names, num_dense, kind):
    from thresher.serving.exports.onnx_raw import export_raw_onnx

    predictor = make_predictor(tmp_path / "bundle", names, num_dense, kind)
    session = onnxruntime.InferenceSession(export_raw_onnx(predictor.bundle, tmp_path / "model.onnx"))
    assert {each.name for each in session.get_inputs()} == set(predictor.schema.input_columns)
    frame = raw_rows()
    for rows in (frame, frame[:1]):
        (found,) = session.run(["probability"], feeds(session, rows))
        expected = predictor.predict_frame(rows)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.ptp(predictor.predict_frame(frame)) > 0.1


def test_fields_without_an_onnx_form_are_named(tmp_path):
    from thresher.serving.exports.onnx_raw import check_raw_values

    bundle = make_predictor(tmp_path / "bundle", ("city", "year"), 0).bundle
    for change, message in (
        ({"transform": "hash", "num_buckets": 9}, "'year' is hashed"),
        ({"date_format": ""}, "'year' reads dates as 'ISO 8601'"),
    ):
        fields = (bundle.encoder.schema.fields[0], replace(bundle.encoder.schema.fields[1], **change))
        changed = type("Changed", (), {"folder": bundle.folder, "encoder": type("E", (), {})()})
        changed.encoder.schema = replace(bundle.encoder.schema, fields=fields)
        with pytest.raises(FormatError, match=message):
            check_raw_values(changed)
