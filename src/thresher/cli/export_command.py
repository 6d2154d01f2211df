"""export: one pruned model out of a run, as a bundle or for another engine, in as many bits as wanted."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from thresher._internal.text import format_bytes
from thresher.cli import options
from thresher.cli.console import Facts, handle_errors, say, show_json
from thresher.cli.progress import Display, display
from thresher.errors import BudgetError, ConfigError, FormatError

if TYPE_CHECKING:
    from thresher.compact.layouts import ValueType
    from thresher.experiment.runs import Run

ENDINGS = {"bundle": "", "onnx": ".onnx", "torch": ".pt2", "compiled": ".pt2", "dense": ".safetensors", "csr": ""}
"""What `--to` knows, and how the file's name must end; those without are folders."""
TRACED = ("onnx", "torch", "compiled")
FEWER_BITS = ("bundle", *TRACED)
HINTS = {
    "bundle": "Try: thresher predict {out} ROWS.csv",
    "onnx": "Inputs: ids, int64 [rows, fields]; fields and offsets are in its metadata.",
    "torch": "Load with torch.export.load('{out}').module().",
    "compiled": "Load with torch._inductor.aoti_load_package('{out}').",
    "dense": "Weights by name, as model.load_state_dict takes them.",
    "csr": "Tables by scipy.sparse.load_npz; the other weights are in network.safetensors.",
}


@handle_errors()
def export(
    source: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run whose tickets are retrained, or of a bundle.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="Where it goes.")],
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="2%", help="Which size of the run; without it the recommended one, or the best on validation."
        ),
    ] = None,
    to: Annotated[
        str,
        typer.Option(
            metavar="FORM",
            help="bundle (a folder, all that predict needs); onnx; torch (an exported program, .pt2); compiled (an "
            "AOTInductor package, .pt2); dense (plain weights, .safetensors); csr (a folder, scipy .npz a table).",
        ),
    ] = "bundle",
    value_type: Annotated[
        str, typer.Option(metavar="TYPE", help="Store values as fp32 (as trained), fp16, bf16, int8 or int4.")
    ] = "fp32",
    retrain: Annotated[
        bool,
        typer.Option(
            "--retrain", metavar="", help="With int8 or int4: go on training in these bits for a few epochs."
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", metavar="", help="Replace what is at --out.")] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:  # fmt: skip
    """Take one pruned model out of a run: a folder with all that predicting needs, and no pickle.

    Or a file for onnxruntime or PyTorch: feature ids in, probabilities out, tables still compact.
    """
    from thresher.serving.bundle import open_bundle

    bits = _check(to, value_type, retrain=retrain)
    folder, run, wanted = _find(source, budget)
    _check_place(out, to, force=force)
    if to in TRACED:
        from thresher.serving.export import check_traceable

        check_traceable(open_bundle(folder))  # before values are rounded, which may take a while
    facts: Facts = {"out": str(out), "to": to, "budget": wanted}
    with TemporaryDirectory() as beside:
        if bits != "fp32":
            smaller = Path(beside) / "bundle"
            with display(quiet=quiet) as progress:
                facts |= _in_fewer_bits(folder, smaller, bits, run, retrain=retrain, progress=progress)
            folder = smaller
        bundle = open_bundle(folder)
        _write(to, folder, out)
    facts["num_parameters"] = bundle.num_parameters
    facts["bytes"] = sum(f.stat().st_size for f in ([out] if out.is_file() else out.rglob("*")) if f.is_file())
    if as_json:
        show_json(facts)
        return
    print(out)  # noqa: T201
    _say_cost(facts)
    size = f"{format_bytes(facts['bytes'])}, {bundle.num_parameters:,} parameters"
    say(f"{size}{f' ({wanted})' if wanted else ''}. {HINTS[to].format(out=out)}")


def _check(to: str, value_type: str, *, retrain: bool) -> "ValueType":
    from typing import cast, get_args

    from thresher.compact.layouts import ValueType

    if to not in ENDINGS:
        raise ConfigError(f"--to {to}: known are {', '.join(ENDINGS)}")
    types = get_args(ValueType)
    if value_type not in types:
        raise ConfigError(f"--value-type {value_type}: known are {', '.join(types)}")
    if value_type != "fp32" and to not in FEWER_BITS:
        raise ConfigError(f"--to {to} holds float32 values; leave --value-type out, or export {', '.join(FEWER_BITS)}")
    if retrain and value_type not in ("int8", "int4"):
        raise ConfigError("--retrain goes on training in fewer bits; say --value-type int8 or int4")
    return cast(ValueType, value_type)


def _find(source: Path, budget: str | None) -> tuple[Path, "Run | None", str | None]:
    """The bundle to export, the run it belongs to, and its budget."""
    from thresher.experiment.runs import Run

    if (source / "bundle.json").exists():
        if budget is not None:
            raise ConfigError(f"{source} is one bundle, of one size; leave --budget out, or name the run")
        return source, None, None
    run = Run.open(source)
    wanted = run.budget(_chosen_budget(run.results) if budget is None else budget)
    folder = run.bundle(wanted)
    if not folder.exists():
        known = ", ".join(str(known) for known in run.config.wanted_budgets() if run.bundle(known).exists())
        raise BudgetError(f"{source} has no bundle for budget {wanted}; it has: {known or 'none yet'}")
    return folder, run, str(wanted)


def _chosen_budget(results: Path) -> str:
    from thresher.report.frontier import Frontier

    if not results.exists():
        raise FormatError(f"{results} does not exist yet; finish the run, or name a --budget")
    frontier = Frontier.load(results)
    return str(frontier.metadata.get("recommended") or frontier.best()[-1].budget)


def _check_place(out: Path, to: str, *, force: bool) -> None:
    ending = ENDINGS[to]
    if ending and out.suffix != ending:
        raise ConfigError(f"--to {to} writes a file that ends in {ending}; {out} does not")
    if out.exists() and not force:
        raise ConfigError(f"{out} already exists; choose another place (--out), or replace it (--force)")
    if out.exists() and out.is_dir() != (not ending):
        raise ConfigError(f"{out} is a {'folder' if ending else 'file'}; choose another place (--out)")
    if out.is_dir():
        _check_is_ours(out)


def _check_is_ours(out: Path) -> None:
    """Raise if something would be lost with this folder that no export has written."""
    from thresher._internal.text import list_first
    from thresher.serving.export import csr_file_names
    from thresher.serving.manifest import bundle_file_names

    files = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_symlink() or not path.is_dir()}
    own = csr_file_names(out) or bundle_file_names(out)
    others = sorted(files - own)
    if others and not own:
        raise ConfigError(f"{out} holds no export of ours, so it is not replaced; choose another place (--out)")
    if others:
        raise ConfigError(
            f"{out} holds more than an export: {list_first(others)}; move that elsewhere before the export is "
            "replaced (--force), or choose another place (--out)"
        )


def _in_fewer_bits(
    source: Path, folder: Path, value_type: "ValueType", run: "Run | None", *, retrain: bool, progress: Display
) -> Facts:
    """Write the bundle again with rounded values; what that costs is measured where the run's data is at hand."""
    from thresher.experiment.quantize import in_fewer_bits
    from thresher.serving.bundle import convert_bundle

    if run is not None:
        rounded = in_fewer_bits(run, source, folder, value_type, retrain=retrain, progress=progress)
        return {
            "value_type": value_type,
            "validation_auc": rounded.point.validation_auc,
            "validation_auc_before": rounded.validation_auc_before,
            "test_auc": rounded.point.test_auc,
        }
    if retrain:
        raise ConfigError("--retrain needs the data; name the run instead of a bundle")
    convert_bundle(source, folder, value_type)
    return {"value_type": value_type}


def _say_cost(facts: Facts) -> None:
    if "validation_auc" in facts:
        cost = facts["validation_auc"] - facts["validation_auc_before"]
        say(f"{facts['value_type']}: validation AUC {facts['validation_auc']:.4f} ({cost:+.5f} against float32)")
    elif "value_type" in facts:
        say(f"{facts['value_type']}: rounded, not measured; exporting from the run measures what it costs")


def _write(to: str, folder: Path, out: Path) -> None:
    from thresher._internal.files import atomic_folder
    from thresher.serving.export import export_csr, export_dense, export_onnx, export_program

    match to:
        case "bundle":
            with atomic_folder(out) as beside:
                shutil.copytree(folder, beside, dirs_exist_ok=True)
        case "onnx":
            export_onnx(folder, out)
        case "torch" | "compiled":
            export_program(folder, out, compiled=to == "compiled")
        case "dense":
            export_dense(folder, out)
        case "csr":
            export_csr(folder, out)
