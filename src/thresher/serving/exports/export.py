"""Exports of a bundle: ONNX, `torch.export`, AOTInductor, a dense `state_dict`, scipy CSR matrices.

ONNX and torch programs map feature ids to probabilities and keep compact tables compact, in standard operations. Raw
values are encoded outside of them, with `RowEncoder`.
"""

import copy
import json
import logging
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import thresher
from thresher._internal.extras import missing_extra
from thresher._internal.storage.files import atomic_file, atomic_folder, read_json, write_json
from thresher.compact.table import CompactTable
from thresher.compact.traceable import TraceableEmbedding
from thresher.data.schema import Schema
from thresher.data.table import Bag
from thresher.errors import FormatError, MissingExtraError
from thresher.serving.bundle import Bundle, open_bundle

OPSET = 18
CSR, NETWORK = "csr.json", "network.safetensors"  # the names of the tables, and the other weights


def export_onnx(bundle: Bundle | str | Path, path: str | Path) -> Path:
    """Write a bundle's model as ONNX. Needs the extra `onnx`.

    Inputs: `ids` int64 `[rows, F]`, global feature ids; `dense` float32 `[rows, K]` if the model has dense inputs.
    Output: `probability` float32 `[rows]`. Fields and their offsets are in the metadata of the file.
    """
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401  (used by torch's exporter)
    except ImportError as error:
        raise missing_extra("ONNX export", error.name, "onnx") from error
    bundle, path = opened(bundle), Path(path)
    check_traceable(bundle)
    model = onnx_model(bundle, OPSET)
    with atomic_file(path) as temporary:
        temporary.write_bytes(model.SerializeToString())
    return path


def onnx_model(bundle: Bundle, opset: int) -> Any:
    """The ONNX model from ids to probabilities. Each multi-valued field adds two inputs.

    They are `bag_<k>`, int64 `[rows, values]`, and `mask_<k>`, float32, 1 for a value and 0 for padding.
    """
    import onnx

    inputs, shapes = example_inputs(bundle)
    num_bags = len(bundle.encoder.schema.bag_fields)
    bag_names = [f"{kind}_{at}" for kind in ("bag", "mask") for at in range(num_bags)]
    dense = ["dense"] if bundle.encoder.schema.dense else []
    with warnings.catch_warnings(), _quiet_logger():
        warnings.simplefilter("ignore")  # about torch internals
        program = torch.onnx.export(
            _to_traceable(bundle),
            inputs,
            dynamo=True,
            input_names=["ids", *dense, *bag_names],
            output_names=["probability"],
            dynamic_shapes=shapes,
            opset_version=opset,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    _remove_debug_info(model)
    schema = bundle.encoder.schema
    fields = [
        {"name": field.name, "offset": offset, "size": field.size}
        for field, offset in zip(schema.fields, schema.field_offsets, strict=True)
    ]
    metadata = {
        "thresher": thresher.__version__,
        "fields": json.dumps(fields, ensure_ascii=False),
        "dense": json.dumps([column.name for column in schema.dense], ensure_ascii=False),
    }
    onnx.helper.set_model_props(model, metadata)
    return model


def export_program(bundle: Bundle | str | Path, path: str | Path, *, compiled: bool = False) -> Path:
    """Write ids → probabilities as a `.pt2` file: `torch.export.load(path).module()(ids)`.

    With `compiled`, the file is an AOTInductor package: native code for this machine that runs without Python
    (`torch._inductor.aoti_load_package`). This needs a C++ compiler.
    """
    bundle, path = opened(bundle), Path(path)
    check_traceable(bundle)
    if path.suffix != ".pt2":
        raise FormatError(f"{path}: the name of an exported program must end in .pt2")
    inputs, shapes = example_inputs(bundle)
    with warnings.catch_warnings(), torch.no_grad(), atomic_file(path) as temporary:
        warnings.simplefilter("ignore")  # about torch internals
        program = torch.export.export(_to_traceable(bundle), inputs, dynamic_shapes=shapes)
        if compiled:
            torch._inductor.aoti_compile_and_package(program, package_path=str(temporary))
        else:
            torch.export.save(program, temporary)
    return path


def dense_state_dict(bundle: Bundle | str | Path) -> Mapping[str, Tensor]:
    """The `state_dict` of the model over a `UniformEmbedding`: compact tables become dense `….weight` `[N, D]`."""
    bundle = opened(bundle)
    state: dict[str, Any] = dict(bundle.model.state_dict())
    for name, table in compact_tables(bundle).items():
        state[f"{name}.weight"] = torch.from_numpy(table.to_dense())
    return state


def export_dense(bundle: Bundle | str | Path, path: str | Path) -> Path:
    path, state = Path(path), dense_state_dict(bundle)
    with atomic_file(path) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, temporary)
    return path


def export_csr(bundle: Bundle | str | Path, folder: str | Path) -> Path:
    """Write `<table>.npz` for every table (`scipy.sparse.load_npz`), and the other weights as network.safetensors."""
    try:
        from scipy.sparse import save_npz
    except ImportError as error:
        raise MissingExtraError("CSR export needs scipy: pip install scipy") from error
    bundle, folder = opened(bundle), Path(folder)
    with atomic_folder(folder) as temporary:
        write_json(temporary / CSR, {"tables": sorted(bundle.tables)})
        for name, table in compact_tables(bundle).items():
            save_npz(temporary / f"{name}.npz", to_csr(table))
        shutil.copy(bundle.folder / NETWORK, temporary)
    return folder


def to_csr(table: CompactTable) -> Any:
    """A `scipy.sparse.csr_array` of a table's kept entries, including kept zeros."""
    from scipy.sparse import csr_array

    check_no_placeholder(table, "CSR files")
    positions, values = table.entries()
    rows, columns = np.divmod(positions, table.embedding_dim)
    starts = np.searchsorted(rows, np.arange(table.num_features + 1))
    return csr_array((values, columns, starts), shape=table.shape)


def csr_file_names(folder: Path) -> set[str]:
    """Names of the files that `export_csr` wrote into a folder; empty if there are none."""
    if not (folder / CSR).is_file():
        return set()
    return {CSR, NETWORK, *(f"{name}.npz" for name in read_json(folder / CSR).get("tables", []))}


def check_no_placeholder(table: CompactTable, form: str) -> None:
    """Raise if pruned entries of the table read as something else than 0, which `form` cannot store."""
    if table.placeholder is not None:
        raise FormatError(
            f"{form} cannot store a table whose pruned entries read as the mean of their field. Export to ONNX or "
            'PyTorch, or prune with placeholder = "zeros"'
        )


def check_traceable(bundle: Bundle) -> None:
    """Raise if the bundle's model cannot be exported to ONNX or a torch program."""
    if bags := bundle.encoder.schema.bag_fields:
        raise FormatError(f"{bundle.folder}: field {bags[0].name!r} is multi-valued. Serve the bundle itself")


class _ProbabilityModel(nn.Module):
    """Ids `[rows, F]` (and dense inputs `[rows, K]`) → probabilities `[rows]`."""

    def __init__(self, model: nn.Module, schema: Schema) -> None:
        super().__init__()
        self.model, self.bag_fields = model, schema.bag_fields
        self.num_single = len(schema.single_fields)

    def forward(
        self,
        ids: Tensor,
        dense: Tensor | None = None,
        bag_ids: tuple[Tensor, ...] = (),
        masks: tuple[Tensor, ...] = (),
    ) -> Tensor:
        if not self.bag_fields:
            return torch.sigmoid(self.model(ids) if dense is None else self.model(ids, dense))
        bags = []
        for at, (field, values, mask) in enumerate(zip(self.bag_fields, bag_ids, masks, strict=True)):
            assert field.pooling is not None
            bags.append(Bag(self.num_single + at, values, mask, field.pooling))
        return torch.sigmoid(self.model(ids, dense, tuple(bags)))


def opened(bundle: Bundle | str | Path) -> Bundle:
    return bundle if isinstance(bundle, Bundle) else open_bundle(bundle)


def compact_tables(bundle: Bundle) -> dict[str, CompactTable]:
    tables: dict[str, CompactTable] = {}
    for name, table in bundle.tables.items():
        if not isinstance(table, CompactTable):
            raise FormatError(
                f"{bundle.folder}: table {name!r} has the form {table.form.kind!r}; only compact tables can be "
                "exported. Serve the bundle itself"
            )
        tables[name] = table
    return tables


def _to_traceable(bundle: Bundle) -> _ProbabilityModel:
    """A copy of the bundle's model that computes probabilities in standard tensor operations."""
    sizes = bundle.encoder.schema.field_sizes
    return probability_model(bundle, lambda table: TraceableEmbedding(sizes, table))


def probability_model(bundle: Bundle, embed: Callable[[CompactTable], nn.Module]) -> _ProbabilityModel:
    """A copy of the bundle's model that computes probabilities, with its tables made by `embed`."""
    model = _shallow_copy(bundle.model)
    for name, table in compact_tables(bundle).items():
        *parents, last = name.split(".")
        module = model
        for parent in parents:  # copied, so that the bundle's model keeps its own submodules
            module._modules[parent] = inner = _shallow_copy(module.get_submodule(parent))
            module = inner
        module._modules[last] = embed(table)
    return _ProbabilityModel(model, bundle.encoder.schema).eval()


def _shallow_copy(module: nn.Module) -> nn.Module:
    copied = copy.copy(module)
    copied._modules = dict(module._modules)
    return copied


def example_inputs(bundle: Bundle) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Inputs `(ids,)`, `(ids, dense)` or `(ids, dense or None, bags, masks)` of three rows, with dynamic shapes."""
    schema, rows = bundle.encoder.schema, torch.export.Dim("rows")
    first = torch.tensor(schema.field_offsets, dtype=torch.int64)
    num_single = len(schema.single_fields)
    ids = first[:num_single].expand(3, -1).contiguous()
    inputs: tuple[Any, ...] = (ids, torch.zeros(3, schema.num_dense)) if schema.num_dense else (ids,)
    shapes: tuple[Any, ...] = tuple({0: rows} for _ in inputs)
    if not schema.bag_fields:
        return inputs, shapes
    bags = tuple(first[at].expand(3, 4).contiguous() for at in range(num_single, schema.num_fields))
    wide = tuple({0: rows, 1: torch.export.Dim(f"values_{at}")} for at in range(len(bags)))
    if not schema.num_dense:
        inputs, shapes = (ids, None), ({0: rows}, None)
    return (*inputs, bags, tuple(torch.ones(3, 4) for _ in bags)), (*shapes, wide, wide)


def _remove_debug_info(model: Any) -> None:
    """Remove source lines of nodes and inferred shapes, which only make the file larger."""
    del model.graph.value_info[:]
    for part in [*model.graph.node, *model.graph.initializer, *model.graph.input, *model.graph.output, model.graph]:
        part.doc_string = ""
        if hasattr(part, "metadata_props"):
            del part.metadata_props[:]


@contextmanager
def _quiet_logger() -> Iterator[None]:
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
