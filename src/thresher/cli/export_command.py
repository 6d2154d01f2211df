"""export: one pruned model of a run as a bundle or for another engine, optionally quantized."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from thresher._internal.registry import import_modules
from thresher._internal.storage.files import private_folder
from thresher._internal.text import format_bytes, list_first
from thresher.cli.console import Details, display, handle_errors, print_json
from thresher.cli.options import Imports, Json, Quiet, option
from thresher.errors import BudgetError, ConfigError, FormatError
from thresher.report.frontier import Frontier
from thresher.report.notes import print_note

if TYPE_CHECKING:
    from thresher.compact.layouts import ValueType
    from thresher.experiment.run.run_folder import Run
    from thresher.report.progress_display import Display

ENDINGS = {
    "bundle": "",
    "onnx": ".onnx",
    "onnx-raw": ".onnx",
    "triton": "",
    "torch": ".pt2",
    "torch-quantized": ".pt2",
    "fbgemm": "",
    "compiled": ".pt2",
    "dense": ".safetensors",
    "csr": "",
}
"""Formats of `--to` and the suffix of the file; formats without a suffix are folders."""
TRACED = ("onnx", "torch", "compiled")
RAW = ("onnx-raw", "triton")
QUANTISABLE = ("bundle", *TRACED, *RAW)
USAGE = {
    "bundle": "Try: thresher predict {out} ROWS.csv{imports}",
    "onnx": "Inputs: ids, int64 [rows, fields]; fields and offsets are in its metadata.",
    "onnx-raw": "Inputs: the raw columns by name; output: probability.",
    "triton": "Put the folder into a model repository of Triton.",
    "torch-quantized": "Load with torch.export.load('{out}').module().",
    "fbgemm": "Load with thresher.serving.exports.fbgemm.load_fbgemm('{out}').",
    "torch": "Load with torch.export.load('{out}').module().",
    "compiled": "Load with torch._inductor.aoti_load_package('{out}').",
    "dense": "Weights by name, as model.load_state_dict takes them.",
    "csr": "Tables by scipy.sparse.load_npz; the other weights are in network.safetensors.",
}
FORMAT_HELP = (
    "bundle (a folder, for thresher predict); onnx (from feature ids); onnx-raw (from raw values); triton (a model "
    "folder); torch-quantized (PyTorch's rowwise quantized op, .pt2); fbgemm (a folder with rows for FBGEMM); torch "
    "(exported program, .pt2); compiled (AOTInductor package, .pt2); dense (plain weights, .safetensors); csr (one "
    "scipy .npz per table, in a folder)."
)
TYPE_HELP = "Store values as fp32 (as trained), fp16, bf16, int8 or int4."
RETRAIN_HELP = "With int8 or int4: train the quantized model for a few more epochs."


@handle_errors()
def export(
    source: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run, or of a bundle.")],
    out: Annotated[Path, option("PATH", "Output file or folder.", "--out", "-o")],
    budget: Annotated[
        str | None, option("2%", "Size to export; default: the recommended one, or the best on validation.")
    ] = None,
    to: Annotated[str, option("FORMAT", FORMAT_HELP, show_default=True)] = "bundle",
    value_type: Annotated[str, option("TYPE", TYPE_HELP, show_default=True)] = "fp32",
    retrain: Annotated[bool, option("", RETRAIN_HELP, "--retrain")] = False,
    force: Annotated[bool, option("", "Replace an existing --out.", "--force")] = False,
    imports: Imports = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Export one pruned model of a run as a bundle, or for onnxruntime, PyTorch or scipy.

    A bundle is a folder for prediction, without pickle. ONNX and PyTorch files map feature ids to probabilities; their
    tables stay compact.
    """
    from thresher.serving.bundle import open_bundle

    import_modules(imports or ())
    wanted_type = _check_options(to, value_type, retrain=retrain)
    folder, run, wanted = _find_bundle(source, budget)
    _check_out(out, to, force=force)
    if to in TRACED:
        from thresher.serving.exports.export import check_traceable

        check_traceable(open_bundle(folder))  # before quantizing, which may take a while
    if to in RAW:
        from thresher.serving.exports.onnx_raw import check_raw_values

        check_raw_values(open_bundle(folder))
    details: Details = {"out": str(out), "to": to, "budget": wanted}
    with private_folder("export") as beside:
        if wanted_type != "fp32":
            smaller = beside / "bundle"
            with display(quiet=quiet) as progress:
                details |= _quantize(folder, smaller, wanted_type, run, retrain=retrain, progress=progress)
            folder = smaller
        bundle = open_bundle(folder)
        _write(to, folder, out)
    details["num_parameters"] = bundle.num_parameters
    details["bytes"] = sum(f.stat().st_size for f in ([out] if out.is_file() else out.rglob("*")) if f.is_file())
    if as_json:
        print_json(details)
    else:
        print(out)
        _print_notes(details, out, value_type, imports or (() if run is None else run.config.imports))


def _print_notes(details: Details, out: Path, value_type: str, imports: Sequence[str]) -> None:
    """What quantization cost, how large the export is, and how to use it."""
    if "validation_auc" in details:
        cost = details["validation_auc"] - details["validation_auc_before"]
        print_note(f"{value_type}: validation AUC {details['validation_auc']:.4f} ({cost:+.5f} against float32)")
    elif value_type != "fp32":
        print_note(f"{value_type}: quantized, AUC not measured. Export from the run to measure it.")
    to, budget = details["to"], details["budget"]
    size = f"{format_bytes(details['bytes'])}, {details['num_parameters']:,} parameters"
    shown = shlex.quote(str(out)) if to == "bundle" else out  # for a shell, or inside quotes of Python
    usage = USAGE[to].format(out=shown, imports="".join(f" --import {module}" for module in imports))
    print_note(f"{size}{f' ({budget})' if budget else ''}. {usage}", fold=False)


def _check_options(to: str, value_type: str, *, retrain: bool) -> "ValueType":
    from thresher.compact.layouts import ValueType

    if to not in ENDINGS:
        raise ConfigError(f"--to {to}: unknown format. Use one of: {', '.join(ENDINGS)}.")
    types = get_args(ValueType)
    if value_type not in types:
        raise ConfigError(f"--value-type {value_type}: unknown type. Use one of: {', '.join(types)}.")
    if value_type != "fp32" and to not in QUANTISABLE:
        raise ConfigError(f"--to {to} stores float32 values. Leave --value-type out.")
    if retrain and value_type not in ("int8", "int4"):
        raise ConfigError("--retrain needs --value-type int8 or int4.")
    return cast(ValueType, value_type)


def _find_bundle(source: Path, budget: str | None) -> tuple[Path, "Run | None", str | None]:
    from thresher.experiment.run.run_folder import Run

    if (source / "bundle.json").exists():
        if budget is not None:
            raise ConfigError(f"{source} is a single bundle. Leave --budget out, or name the run.")
        return source, None, None
    run = Run.open(source)
    if budget is None:
        if not run.results.exists():
            raise FormatError(f"{run.results} does not exist yet. Finish the run, or use --budget.")
        frontier = Frontier.load(run.results)
        budget = str(frontier.metadata.get("recommended") or frontier.best()[-1].budget)
    wanted = run.budget(budget)
    folder = run.bundle(wanted)
    if not folder.exists():
        known = ", ".join(str(known) for known in run.config.wanted_budgets() if run.bundle(known).exists())
        raise BudgetError(f"{source} has no bundle for budget {wanted}. It has: {known or 'none yet'}.")
    return folder, run, str(wanted)


def _check_out(out: Path, to: str, *, force: bool) -> None:
    """Raise if `out` has the wrong suffix, exists, or holds files that no export has written."""
    from thresher.serving.exports.export import csr_file_names
    from thresher.serving.exports.fbgemm import fbgemm_file_names
    from thresher.serving.exports.triton import triton_file_names
    from thresher.serving.manifest import bundle_file_names

    ending = ENDINGS[to]
    if ending and out.suffix != ending:
        raise ConfigError(f"--to {to} writes a {ending} file. Rename --out {out}.")
    if out.exists() and not force:
        raise ConfigError(f"{out} already exists. Use --force to replace it, or another --out.")
    if out.exists() and out.is_dir() != (not ending):
        raise ConfigError(f"{out} is a {'folder' if ending else 'file'}. Use another --out.")
    if not out.is_dir():
        return
    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_symlink() or not path.is_dir()}
    own = csr_file_names(out) or bundle_file_names(out) or triton_file_names(out) or fbgemm_file_names(out)
    others = sorted(files - own)
    if others and not own:
        raise ConfigError(f"{out} is not an export, so it is not replaced. Use another --out.")
    if others:
        raise ConfigError(f"{out} holds files that are not part of an export: {list_first(others)}. Use another --out.")


def _quantize(
    source: Path, folder: Path, value_type: "ValueType", run: "Run | None", *, retrain: bool, progress: "Display"
) -> Details:
    """Write the bundle with quantized values; with a run, its AUC is measured on the run's data."""
    from thresher.experiment.quantize import quantize_bundle
    from thresher.serving.change_bundle import convert_bundle

    if run is not None:
        rounded = quantize_bundle(run, source, folder, value_type, retrain=retrain, progress=progress)
        return {
            "value_type": value_type,
            "validation_auc": rounded.point.validation_auc,
            "validation_auc_before": rounded.validation_auc_before,
            "test_auc": rounded.point.test_auc,
        }
    if retrain:
        raise ConfigError("--retrain needs the data. Name the run instead of a bundle.")
    convert_bundle(source, folder, value_type)
    return {"value_type": value_type}


def _write(to: str, folder: Path, out: Path) -> None:
    from thresher.serving.change_bundle import copy_bundle
    from thresher.serving.exports.export import export_csr, export_dense, export_onnx, export_program
    from thresher.serving.exports.fbgemm import export_fbgemm
    from thresher.serving.exports.onnx_raw import export_raw_onnx
    from thresher.serving.exports.torch_quantized import export_quantized
    from thresher.serving.exports.triton import export_triton

    match to:
        case "bundle":
            copy_bundle(folder, out)
        case "onnx":
            export_onnx(folder, out)
        case "onnx-raw":
            export_raw_onnx(folder, out)
        case "triton":
            export_triton(folder, out)
        case "torch-quantized":
            export_quantized(folder, out)
        case "fbgemm":
            export_fbgemm(folder, out)
        case "torch" | "compiled":
            export_program(folder, out, compiled=to == "compiled")
        case "dense":
            export_dense(folder, out)
        case "csr":
            export_csr(folder, out)
