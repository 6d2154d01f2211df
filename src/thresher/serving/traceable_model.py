"""A bundle's model in plain tensor operations, from ids to probabilities: what goes into ONNX and `torch.export`."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from thresher.compact.table import CompactTable
from thresher.compact.traceable import TraceableEmbedding
from thresher.errors import FormatError
from thresher.serving.bundle import Bundle


class ProbabilityModel(nn.Module):
    """Ids `[rows, F]` (and dense inputs `[rows, K]`) → probabilities `[rows]`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, dense: Tensor | None = None) -> Tensor:
        return torch.sigmoid(self.model(ids) if dense is None else self.model(ids, dense))


def check_traceable(bundle: Bundle) -> None:
    """Raise if the bundle's model cannot be made one that any engine runs."""
    if bags := bundle.encoder.schema.bag_fields:
        raise FormatError(
            f"{bundle.folder}: field {bags[0].name!r} is multi-valued; "
            "models with such fields are not exported yet: serve the bundle itself"
        )


def make_traceable(bundle: Bundle) -> ProbabilityModel:
    """A copy of the bundle's model whose compact tables any engine can run."""
    check_traceable(bundle)
    schema = bundle.encoder.schema
    model = copy.copy(bundle.model)
    model._modules = dict(model._modules)
    for name, table in bundle.tables.items():
        if not isinstance(table, CompactTable):
            raise FormatError(
                f"{bundle.folder}: table {name!r} is of a method with parts of its own ({table.form.kind}); "
                "only compact tables are exported: serve the bundle itself"
            )
        _replace(model, name.split("."), TraceableEmbedding(schema.field_sizes, table))
    return ProbabilityModel(model).eval()


def example_inputs(bundle: Bundle, num_rows: int = 3) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    """Inputs of the right shapes and types, and their names."""
    schema = bundle.encoder.schema
    ids = torch.tensor(schema.field_offsets, dtype=torch.int64).expand(num_rows, -1).contiguous()
    if not schema.num_dense:
        return (ids,), ("ids",)
    return (ids, torch.zeros(num_rows, schema.num_dense)), ("ids", "dense")


def dynamic_rows(inputs: tuple[Tensor, ...]) -> tuple[dict[int, Any], ...]:
    """Any number of rows."""
    rows = torch.export.Dim("rows")
    return tuple({0: rows} for _ in inputs)


def _replace(module: nn.Module, path: list[str], replacement: nn.Module) -> None:
    """Set a submodule on copies of the modules above it, so that the original keeps its own."""
    if len(path) == 1:
        module._modules[path[0]] = replacement
        return
    inner = module._modules[path[0]]
    assert inner is not None
    child = copy.copy(inner)
    child._modules = dict(inner._modules)
    module._modules[path[0]] = child
    _replace(child, path[1:], replacement)
