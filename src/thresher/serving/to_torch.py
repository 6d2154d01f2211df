"""A bundle for other users of torch: an exported program, a compiled package, or a plain dense `state_dict`."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from thresher._internal.files import atomic_file
from thresher.compact.table import CompactTable
from thresher.errors import FormatError
from thresher.serving.bundle import Bundle, open_bundle
from thresher.serving.traceable_model import dynamic_rows, example_inputs, make_traceable


def export_program(bundle: Bundle | str | Path, path: str | Path, *, compiled: bool = False) -> Path:
    """Write ids → probabilities as a `.pt2` file: `torch.export.load(path).module()(ids)`.

    Args:
        bundle: what to export.
        path: the file, ending in `.pt2`.
        compiled: make an AOTInductor package instead, native code for this machine that runs without Python
            (`torch._inductor.aoti_load_package`); needs a C++ compiler.
    """
    bundle = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
    path = Path(path)
    if path.suffix != ".pt2":
        raise FormatError(f"{path}: an exported program ends in .pt2; rename it")
    inputs, _ = example_inputs(bundle)
    with warnings.catch_warnings(), torch.no_grad(), atomic_file(path) as beside:
        warnings.simplefilter("ignore")  # about torch's own internals
        program = torch.export.export(make_traceable(bundle), inputs, dynamic_shapes=dynamic_rows(inputs))
        named = beside.with_suffix(".pt2")  # both writers insist on the ending
        try:
            if compiled:
                torch._inductor.aoti_compile_and_package(program, package_path=str(named))
            else:
                torch.export.save(program, named)
            named.replace(beside)
        finally:
            named.unlink(missing_ok=True)
    return path


def dense_state_dict(bundle: Bundle | str | Path) -> Mapping[str, Tensor]:
    """The `state_dict` of the same model over plain tables: every compact table as a dense `….weight` `[N, D]`.

    It fits the model built over a `UniformEmbedding`. This is the large form: for people who need it.
    """
    bundle = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
    state: dict[str, Any] = dict(bundle.model.state_dict())
    for name, table in bundle.tables.items():
        if not isinstance(table, CompactTable):
            raise FormatError(
                f"{bundle.folder}: table {name!r} is of a method with parts of its own, not a plain table"
            )
        state[f"{name}.weight"] = torch.from_numpy(table.to_dense())
    return state


def export_dense(bundle: Bundle | str | Path, path: str | Path) -> Path:
    """Write `dense_state_dict` as one safetensors file."""
    from safetensors.torch import save_file

    path, state = Path(path), dense_state_dict(bundle)
    with atomic_file(path) as beside:
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, beside)
    return path
