"""export_raw_onnx(): raw values → probabilities in one ONNX file, with the values of the vocabularies inside.

Every raw column is an input of its name, `[rows]`: text (string, `""` if missing), or a number (double, NaN if missing)
if only numeric transforms and dense inputs read it. Output: `probability`, float32 `[rows]`. Text is looked up as it
is: write integers as in the training data, `3` or `3.0`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thresher._internal.extras import missing_extra
from thresher._internal.storage.files import atomic_file
from thresher.data.encode.row_encoder import AnyVocabulary
from thresher.data.schema import Field, Schema
from thresher.errors import FormatError
from thresher.serving.bundle import Bundle
from thresher.serving.exports.export import onnx_model, opened
from thresher.serving.exports.onnx_dates import DateParts, check_date_format

OPSET, ML_OPSET = 20, 4
OUTPUT, CORE = "probability", "model/"
NUMBER = r"\s*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?\s*"


def export_raw_onnx(bundle: Bundle | str | Path, path: str | Path) -> Path:
    """Write a bundle as ONNX from raw values to probabilities. Needs the extra `onnx`."""
    try:
        import onnx
    except ImportError as error:
        raise missing_extra("ONNX export", error.name, "onnx") from error
    bundle, path = opened(bundle), Path(path)
    schema = bundle.encoder.schema
    check_raw_values(bundle)
    core = onnx.compose.add_prefix(onnx_model(bundle, OPSET), CORE)
    graph = RawValues(schema, bundle.encoder.vocabularies)
    graph.build()
    made = onnx.helper.make_graph(
        [*graph.nodes, *core.graph.node, onnx.helper.make_node("Identity", [f"{CORE}{OUTPUT}"], [OUTPUT])],
        "thresher",
        [onnx.helper.make_tensor_value_info(name, graph.types[name], ["rows"]) for name in schema.input_columns],
        [onnx.helper.make_tensor_value_info(OUTPUT, onnx.TensorProto.FLOAT, ["rows"])],
        [*graph.initializers, *core.graph.initializer],
    )
    opsets = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    model = onnx.helper.make_model(made, opset_imports=opsets, ir_version=core.ir_version, functions=core.functions)
    onnx.helper.set_model_props(model, {entry.key: entry.value for entry in core.metadata_props})
    with atomic_file(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
    return path


def check_raw_values(bundle: Bundle) -> None:
    """Raise if a raw value of this bundle cannot be encoded in standard ONNX operations."""
    schema = bundle.encoder.schema
    for field in schema.fields:
        if field.transform == "hash":
            raise FormatError(
                f"{bundle.folder}: field {field.name!r} is hashed (CRC-32), which ONNX lacks. Export ids."
            )
        if field.transform == "date":
            check_date_format(field)
        if field.pooling is not None and not field.separator:
            problem = f"field {field.name!r} has lists without a separator"
            raise FormatError(f"{bundle.folder}: {problem}; ONNX inputs are texts. Export ids or serve the bundle.")
        if field.pooling is not None and field.transform != "none":
            problem = f"multi-valued field {field.name!r} has the transform {field.transform!r}"
            raise FormatError(f"{bundle.folder}: {problem}, which this export does not support. Serve the bundle.")
    if OUTPUT in schema.input_columns:
        raise FormatError(f"{bundle.folder}: column {OUTPUT!r} has the name of the output; rename it.")


class RawValues:
    """The nodes that turn raw columns into the inputs of the model: `ids`, `dense`, and ids and masks of bags."""

    def __init__(self, schema: Schema, vocabularies: Sequence[AnyVocabulary]) -> None:
        import onnx

        self.schema, self.vocabularies = schema, vocabularies
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._onnx, self._count, self._known = onnx, 0, dict[str, str]()
        texts = {field.column for field in schema.fields if not _reads_numbers(field)}
        kinds = onnx.TensorProto
        self.types = {name: kinds.STRING if name in texts else kinds.DOUBLE for name in schema.input_columns}

    def build(self) -> None:
        ids = []
        for field, vocabulary, offset in zip(
            self.schema.fields, self.vocabularies, self.schema.field_offsets, strict=True
        ):
            first = self.constant(np.int64(offset))
            if field.pooling is None:
                local = self._single(field, vocabulary)
                ids.append(self.add("Unsqueeze", self.add("Add", local, first), self.constant(np.array([1]))))
            else:
                values, _ = self.add("StringSplit", field.column, outputs=2, delimiter=field.separator)
                local = self._look_up(values, dict(vocabulary.items()))
                at = self.schema.bag_fields.index(field)
                self.add("Add", local, first, name=f"{CORE}bag_{at}")
                filled = self.add("Not", self.add("Equal", values, self.constant_text("")))
                self.add("Cast", filled, name=f"{CORE}mask_{at}", to=self._onnx.TensorProto.FLOAT)
        self.add("Concat", *ids, name=f"{CORE}ids", axis=1)
        if self.schema.dense:
            self._dense()

    def _single(self, field: Field, vocabulary: AnyVocabulary) -> str:
        """Local ids `[rows]` of one field."""
        keys = dict(vocabulary.items())
        if field.transform == "none":
            return self._look_up(field.column, keys)
        numbers, missing = self._numbers(field.column)
        if field.transform == "date":
            buckets, broken = DateParts(self).of(field, numbers)
        else:
            broken = self.add("IsInf", numbers)
            shifted = self.add("Sub", numbers, self.constant(np.float64(field.shift)))
            present = self.add("Where", self.add("Or", missing, broken), self.constant(np.float64(0)), shifted)
            buckets = self._log2(present) if field.transform == "log2" else self._quantile(present, field.edges)
        numbered = {int(text): local_id for text, local_id in keys.items() if text}
        found = self._look_up(buckets, numbered) if numbered else self.add("Sub", buckets, buckets)
        found = self.add("Where", broken, self.constant(np.int64(0)), found)
        return str(self.add("Where", missing, self._missing_id(field.column, keys), found))

    def _missing_id(self, column: str, keys: dict[str, int]) -> str:
        """The local id of a missing value; a text that is not a number is unknown instead."""
        known, unknown = self.constant(np.int64(keys.get("", 0))), self.constant(np.int64(0))
        if self.types[column] != self._onnx.TensorProto.STRING:
            return known
        return str(self.add("Where", self.add("Equal", column, self.constant_text("")), known, unknown))

    def _log2(self, values: str) -> str:
        """`transforms.log2_buckets`."""
        two = self.constant(np.float64(2))
        logs = self.add("Log", self.add("Max", values, two))
        large = self.add("Floor", self.add("Mul", logs, logs))
        small = self.add("Max", self.add("Sub", self.add("Floor", values), two), self.constant(np.float64(-(2.0**62))))
        chosen = self.add("Where", self.add("Greater", values, two), large, small)
        return str(self.add("Cast", chosen, to=self._onnx.TensorProto.INT64))

    def _quantile(self, values: str, edges: tuple[float, ...]) -> str:
        """`transforms.quantile_buckets`."""
        column = self.add("Unsqueeze", values, self.constant(np.array([1])))
        above = self.add("GreaterOrEqual", column, self.constant(np.array([edges], np.float64).reshape(1, -1)))
        counted = self.add("Cast", above, to=self._onnx.TensorProto.INT64)
        return str(self.add("ReduceSum", counted, self.constant(np.array([1])), keepdims=0))

    def _dense(self) -> None:
        columns = []
        for dense in self.schema.dense:
            numbers, missing = self._numbers(dense.column)
            if dense.scaling == "log":
                logs = self.add("Log", self.add("Add", self.add("Abs", numbers), self.constant(np.float64(1))))
                numbers = self.add("Mul", self.add("Sign", numbers), logs)
            narrow = self.add("Cast", numbers, to=self._onnx.TensorProto.FLOAT)  # as in training
            wide = self.add("Cast", narrow, to=self._onnx.TensorProto.DOUBLE)
            centred = self.add("Sub", wide, self.constant(np.float64(dense.mean)))
            scaled = self.add("Div", centred, self.constant(np.float64(dense.scale)))
            filled = self.add("Where", missing, self.constant(np.float64(0)), scaled)
            cast = self.add("Cast", filled, to=self._onnx.TensorProto.FLOAT)
            columns.append(self.add("Unsqueeze", cast, self.constant(np.array([1]))))
        self.add("Concat", *columns, name=f"{CORE}dense", axis=1)

    def _numbers(self, column: str) -> tuple[str, str]:
        """A column as doubles, and which of them are missing or not a number."""
        if self.types[column] == self._onnx.TensorProto.STRING:
            good = self.add("RegexFullMatch", column, pattern=NUMBER)
            text = self.add("Where", good, column, self.constant_text("nan"))
            numbers = self.add("Cast", text, to=self._onnx.TensorProto.DOUBLE)
        else:
            numbers = column
        return numbers, self.add("IsNaN", numbers)

    def _look_up(self, values: str, keys: dict[Any, int]) -> str:
        if not keys:  # the operator needs a key; this text has none of the separators of a file
            keys = {"\0": 0}
        kind = "keys_strings" if isinstance(next(iter(keys)), str) else "keys_int64s"
        attributes: dict[str, Any] = {kind: list(keys), "values_int64s": list(keys.values()), "default_int64": 0}
        return str(self.add("LabelEncoder", values, domain="ai.onnx.ml", **attributes))

    def add(self, operator: str, *inputs: str, name: str = "", domain: str = "", outputs: int = 1, **more: Any) -> Any:
        """Add a node and return the name of its output, or of its outputs."""
        names = [name or self._new_name() for _ in range(outputs)]
        self.nodes.append(self._onnx.helper.make_node(operator, list(inputs), names, domain=domain, **more))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any) -> str:
        array = np.asarray(value)
        key = f"{array.dtype}{array.shape}{array.tolist()}"
        if key not in self._known:
            self._known[key] = name = self._new_name()
            self.initializers.append(self._onnx.numpy_helper.from_array(array, name))
        return self._known[key]

    def constant_text(self, text: str) -> str:
        if text not in self._known:
            self._known[text] = name = self._new_name()
            encoded: Any = [text.encode()]
            made = self._onnx.helper.make_tensor(name, self._onnx.TensorProto.STRING, [], encoded)
            self.initializers.append(made)
        return self._known[text]

    def _new_name(self) -> str:
        self._count += 1
        return f"values/{self._count}"


def _reads_numbers(field: Field) -> bool:
    return field.pooling is None and field.transform in ("log2", "quantiles", "date")
