"""What the campaigns interrupt: small versions of `prune`, `compare`, `encode` and `export`, each with its resume.

Clocks stand still, so that files without a crash are equal to the byte. Import this module before `thresher`.
"""

import time

# ruff: noqa: E402 – clocks are replaced before thresher imports them
time.perf_counter = time.process_time = lambda: 0.0

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from matplotlib.figure import Figure

import thresher.experiment.comparison.sweep as sweep
from thresher.cli.app import app
from thresher.data.batches.batches import TensorBatches
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.embeddings.method_registry import method_grid
from thresher.embeddings.pep import PepConfig
from thresher.experiment.compare import compare
from thresher.experiment.comparison.compare_config import CompareConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import prune
from thresher.experiment.prune_model import prune_model
from thresher.search.schedule import SearchConfig
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

FAST = OptimizerConfig(learning_rate=1e-2)
SYNTHETIC = SyntheticConfig(num_rows=300, num_signal_fields=2, num_noise_fields=1, field_size=12, seed=2)
DATA = DataConfig(source="synthetic", synthetic=SYNTHETIC)
PRUNE = RunConfig(
    effort="paper",
    data=DATA,
    embedding=PepConfig(embedding_dim=4),
    search=SearchConfig(warmup_epochs=1, plan_epochs=1, max_epochs=2, clock_steps=2, optimizer=FAST),
    training=TrainingConfig(max_epochs=2, batch_size=64, patience=1, optimizer=FAST),
    budgets=("20",),
    teacher_share=1.0,
    distill_search=True,
)
COMPARE = CompareConfig(
    data=DATA, methods=("pep", "uniform"), budgets=("40%",), embedding_dim=4, seeds=1, trials=1, rival=False,
    search=PRUNE.search, training=PRUNE.training,
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """Work in a folder. `again` continues it after a crash; by default the same call."""

    name: str
    start: Callable[[Path], object]
    again: Callable[[Path], object] | None = None
    before: Callable[[Path], object] | None = None  # what the folder holds before the work

    def resume(self, folder: Path) -> None:
        (self.again or self.start)(folder)


def prune_by_force(folder: Path) -> None:
    prune(PRUNE, out=folder / "run", force=True)


def run_and_note(folder: Path) -> None:
    """A run of another seed, and a file of the user beside it."""
    prune(replace(PRUNE, seed=5), out=folder / "run")
    (folder / "notes.txt").write_text("mine")


def encode_again(folder: Path) -> None:
    encode(build_source(DATA), folder / "table", overwrite=True)


def other_table(folder: Path) -> None:
    encode(build_source(replace(DATA, synthetic=replace(SYNTHETIC, seed=9))), folder / "table")


def export_all(folder: Path) -> None:
    """Three formats: a bundle of int8 values, tables of scipy and dense weights."""
    run = str(folder / "run")
    exports = [["bundle", "--value-type", "int8"], ["csr"], ["dense"]]
    for to, out in zip(exports, ("small", "csr", "dense.safetensors"), strict=True):
        app(["export", run, "--budget", "20", "--out", str(folder / out), "--to", *to, "--force", "--quiet"],
            standalone_mode=False)  # fmt: skip


def copy_run(folder: Path) -> None:
    prune(PRUNE, out=folder / "run")


TASKS = [
    Task("encode", lambda folder: encode(build_source(DATA), folder / "table")),
    Task("encode --overwrite", encode_again, before=other_table),
    Task("prune", lambda folder: prune(PRUNE, out=folder / "run"),
         lambda folder: prune(PRUNE, out=folder / "run", resume=True)),
    Task("prune --force", prune_by_force, before=run_and_note),
    Task("compare", lambda folder: compare(COMPARE, out=folder / "compared")),
    Task("export", export_all, before=copy_run),
]  # fmt: skip


def prepare() -> None:
    """Make a process ready to fork children: compile kernels and load modules, but start no threads of polars."""
    Figure.savefig = lambda figure, path, **options: Path(path).write_text("a figure")  # drawing takes most of the time
    sweep.method_grid = lambda name: method_grid(name)[:1]
    torch.set_num_threads(1)
    ids = torch.randint(12, (200, 3), generator=torch.Generator().manual_seed(0)) + torch.tensor([0, 12, 24])
    batches = TensorBatches((ids,), (ids.sum(1) % 2).float(), 64)
    model = torch.nn.Sequential(torch.nn.Embedding(36, 4), torch.nn.Flatten(), torch.nn.Linear(12, 1))
    data = SplitBatches(train=batches, validation=batches, test=batches)
    prune_model(model, data, ["20"], PRUNE.embedding, effort="paper", search=PRUNE.search, training=PRUNE.training)


def run_child(work: Callable[[], object], log: Path) -> int:
    """Run in a forked child; returns its exit status as of `os.waitpid`."""
    return os.waitpid(start_child(work, log), 0)[1]


def start_child(work: Callable[[], object], log: Path) -> int:
    """Fork a child whose output goes to a file."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        work()
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def contents(folder: Path) -> dict[str, bytes | None]:
    """Relative path → content; None for folders."""
    return {
        path.relative_to(folder).as_posix(): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def put(source: Path, folder: Path) -> None:
    """Make a folder hold what another one holds."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copytree(source, folder, dirs_exist_ok=True)
