"""The configuration is valid for Triton's own protobuf, and its tensor names and shapes are those of the ONNX file."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from raw_columns import VALUES, make_predictor, raw_rows

pytestmark = pytest.mark.slow  # the exporter takes seconds
pytest.importorskip("onnx", reason="needs the extra onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")


@pytest.fixture(scope="module")
def config_class():
    """`ModelConfig` of tritonclient, whose package needs gRPC to be imported as a whole."""
    found = importlib.util.find_spec("tritonclient")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs tritonclient")
    path = Path(found.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelConfig


def test_a_model_repository_runs_through_the_names_of_its_config(tmp_path, config_class):
    from google.protobuf import text_format

    from thresher.serving.exports.triton import export_triton, triton_file_names

    predictor = make_predictor(tmp_path / "bundle", tuple(VALUES), 2)
    folder = export_triton(predictor.bundle, tmp_path / "clicks")
    assert triton_file_names(folder) == {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    }
    config = text_format.Parse((folder / "config.pbtxt").read_text(encoding="utf-8"), config_class())
    assert (config.name, config.backend, config.max_batch_size) == ("clicks", "onnxruntime", 4096)
    assert config.dynamic_batching.max_queue_delay_microseconds == 500
    session = onnxruntime.InferenceSession(folder / "1" / "model.onnx")
    # Triton sends [rows, 1] and applies `reshape`: [rows]
    assert all(list(each.dims) == [1] and not each.reshape.shape for each in [*config.input, *config.output])
    kinds = config_class.DESCRIPTOR.fields_by_name["input"].message_type.fields_by_name["data_type"].enum_type
    types = {"tensor(string)": "TYPE_STRING", "tensor(double)": "TYPE_FP64", "tensor(float)": "TYPE_FP32"}
    for declared, actual in (
        (config.input, session.get_inputs()),
        (config.output, session.get_outputs()),
    ):
        names = {each.name: kinds.values_by_number[each.data_type].name for each in declared}
        assert names == {each.name: types[each.type] for each in actual}
    frame = raw_rows(50)
    arrays = {"TYPE_STRING": object, "TYPE_FP64": np.float64}
    feeds = {
        each.name: frame[each.name].to_numpy().astype(arrays[kinds.values_by_number[each.data_type].name])
        for each in config.input
    }
    (found,) = session.run([config.output[0].name], feeds)
    np.testing.assert_allclose(found, predictor.predict_frame(frame), atol=1e-6)
    (warmup,) = config.model_warmup
    zeros = {each.name: np.zeros(1, np.float64) for each in config.input if warmup.inputs[each.name].zero_data}
    blank = {name: np.array([""], object) if feeds[name].dtype == object else value for name, value in zeros.items()}
    assert session.run(None, blank)[0].shape == (1,)
