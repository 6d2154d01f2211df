"""A bundle as one ONNX file: feature ids to probability, the compact tables kept compact in standard operations.

Raw values are encoded outside (`RowEncoder`); the file tells the fields and their offsets in its metadata.
"""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import thresher
from thresher._internal.files import atomic_file
from thresher.errors import MissingExtraError
from thresher.serving.bundle import Bundle, open_bundle
from thresher.serving.traceable_model import dynamic_rows, example_inputs, make_traceable

OPSET = 18


def export_onnx(bundle: Bundle | str | Path, path: str | Path) -> Path:
    """Write a bundle's model as ONNX.

    Inputs: `ids` int64 `[rows, F]`, global feature ids; `dense` float32 `[rows, K]` if the model has dense inputs.
    Output: `probability` float32 `[rows]`. Needs the extra `thresher[onnx]`.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError as error:
        raise MissingExtraError(f"ONNX export needs {error.name}: pip install 'thresher[onnx]'") from error
    bundle = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
    inputs, names = example_inputs(bundle)
    with _quiet():
        program = torch.onnx.export(
            make_traceable(bundle),
            inputs,
            dynamo=True,
            input_names=list(names),
            output_names=["probability"],
            dynamic_shapes=dynamic_rows(inputs),
            opset_version=OPSET,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    _strip(model)
    onnx.helper.set_model_props(model, _about(bundle))
    path = Path(path)
    with atomic_file(path) as beside:
        beside.write_bytes(model.SerializeToString())
    return path


def _about(bundle: Bundle) -> dict[str, str]:
    schema = bundle.encoder.schema
    fields = [
        {"name": field.name, "offset": offset, "size": field.size}
        for field, offset in zip(schema.fields, schema.field_offsets, strict=True)
    ]
    return {
        "thresher": thresher.__version__,
        "fields": json.dumps(fields, ensure_ascii=False),
        "dense": json.dumps([column.name for column in schema.dense], ensure_ascii=False),
    }


def _strip(model: Any) -> None:
    """Leave out what only the exporter's authors read: source lines of every node, inferred shapes."""
    del model.graph.value_info[:]
    for part in [*model.graph.node, *model.graph.initializer, *model.graph.input, *model.graph.output, model.graph]:
        part.doc_string = ""
        if hasattr(part, "metadata_props"):
            del part.metadata_props[:]


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns about its own internals and about packages nobody asked for."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
