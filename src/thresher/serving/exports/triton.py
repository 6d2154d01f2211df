"""export_triton(): a model repository for Triton's ONNX Runtime backend, from raw values to probabilities.

    <folder>/config.pbtxt   inputs, output, dynamic batching, warm-up
    <folder>/1/model.onnx   the file of `export_raw_onnx`
    <folder>/README.md      how to start the server
    <folder>/triton.json    the names of these files

The folder is one model: it belongs into a repository folder. Its name is the name of the model.
"""

import json
from pathlib import Path

from thresher._internal.extras import missing_extra
from thresher._internal.storage.files import atomic_folder, read_json, write_json, write_text
from thresher.serving.bundle import Bundle
from thresher.serving.exports.export import opened
from thresher.serving.exports.onnx_raw import OUTPUT, check_raw_values, export_raw_onnx

MAX_BATCH_ROWS = 4096
MAX_QUEUE_MICROSECONDS = 500
FILES = ("config.pbtxt", "README.md", "triton.json", "1/model.onnx")


def export_triton(bundle: Bundle | str | Path, folder: str | Path, *, max_batch_rows: int = MAX_BATCH_ROWS) -> Path:
    """Write a bundle as a model for Triton. Needs the extra `onnx`."""
    try:
        import onnx
    except ImportError as error:
        raise missing_extra("Triton export", error.name, "onnx") from error
    bundle, folder = opened(bundle), Path(folder)
    check_raw_values(bundle)
    with atomic_folder(folder) as temporary:
        (temporary / "1").mkdir()
        path = export_raw_onnx(bundle, temporary / "1" / "model.onnx")
        inputs = [
            (each.name, "TYPE_STRING" if each.type.tensor_type.elem_type == onnx.TensorProto.STRING else "TYPE_FP64")
            for each in onnx.load(path).graph.input
        ]
        write_text(temporary / "config.pbtxt", model_config(folder.name, inputs, max_batch_rows))
        write_text(temporary / "README.md", _readme(folder.name))
        write_json(temporary / "triton.json", {"files": list(FILES)})
    return folder


def model_config(name: str, inputs: list[tuple[str, str]], max_batch_rows: int) -> str:
    """The text of config.pbtxt. Every tensor of the model is `[rows]`, one value per row."""

    def tensor(name: str, data_type: str) -> str:
        return f"{{ name: {_text(name)} data_type: {data_type} dims: [ 1 ] reshape: {{ shape: [ ] }} }}"

    listed = ",\n".join(f"  {tensor(*each)}" for each in inputs)
    samples = "\n".join(
        f"  inputs {{ key: {_text(name)} value: {{ data_type: {kind} dims: [ 1 ] zero_data: true }} }}"
        for name, kind in inputs
    )
    return f"""name: {_text(name)}
backend: "onnxruntime"
max_batch_size: {max_batch_rows}
input [
{listed}
]
output [
  {tensor(OUTPUT, "TYPE_FP32")}
]
dynamic_batching {{ max_queue_delay_microseconds: {MAX_QUEUE_MICROSECONDS} }}
model_warmup {{
  name: "one row"
  batch_size: 1
{samples}
}}
"""


def triton_file_names(folder: Path) -> set[str]:
    """Names of the files that `export_triton` wrote into a folder; empty if there are none."""
    return (
        set(FILES) if (folder / "triton.json").is_file() and read_json(folder / "triton.json").get("files") else set()
    )


def _text(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _readme(name: str) -> str:
    return f"""This folder is one model for Triton: raw values in, probabilities out.
Put it into a model repository (`models/{name}`) and start `tritonserver --model-repository models`.
Every column is an input `[rows, 1]`: BYTES for text ("" if missing), FP64 for numbers (NaN if missing).
The output `{OUTPUT}` is FP32 `[rows, 1]`; several requests are computed together (dynamic batching).
With one CPU, also set `parameters {{ key: "intra_op_thread_count" value: {{ string_value: "1" }} }}` in config.pbtxt.
"""
