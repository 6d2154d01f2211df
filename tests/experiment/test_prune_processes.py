"""A run of two processes: tickets and metrics of one process, resumed bit for bit; a message if one is killed."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from processes import run_in_processes
from thresher._internal.processes import Processes, training_together
from thresher._internal.storage.files import read_json
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.embeddings.pep import PepConfig
from thresher.errors import TimeLimitReached
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import encode_once, prune
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_workflow import RunWorkflow
from thresher.models.fm import DeepFmConfig, FmConfig
from thresher.search.schedule import SearchConfig
from thresher.search.ticket_files import load_ticket
from thresher.training.checkpoint import Checkpoint
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

FAST = OptimizerConfig(learning_rate=1e-2, updates="rows")
CONFIG = RunConfig(
    data=DataConfig(source="synthetic", synthetic=SyntheticConfig(num_rows=3_000, field_size=40)),
    model=FmConfig(),
    embedding=PepConfig(embedding_dim=4),
    search=SearchConfig(optimizer=FAST, plan_epochs=2),
    training=TrainingConfig(batch_size=250, max_epochs=2, patience=1, optimizer=FAST),
    budgets=("20%", "5%"),
    effort="fast",
)
DEEP = replace(CONFIG, model=DeepFmConfig(hidden_sizes=(8,), dropout=0.5), teacher_share=0.0)


def run_and_resume(rank, folder):
    prune(CONFIG, out=folder / "two")
    prune(DEEP, out=folder / "whole")
    for stop_at in (5, 18):  # in the dense training, then in the search
        stop_after(DEEP, folder / "resumed", stop_at)
    prune(DEEP, out=folder / "resumed", resume=True)
    stop_in_search(CONFIG, folder / "then one")
    prune(CONFIG, out=folder / "then two", resume=True)


def stop_after(config, folder, num_steps):
    """Start or resume a run and end it as a time limit does."""
    steps = iter(range(num_steps))
    stop(config, folder, lambda: next(steps, None) is None)


def stop_in_search(config, folder):
    """End a new run after five steps of its search."""
    steps = iter(range(5))
    stop(config, folder, lambda: (folder / "tickets").exists() and next(steps, None) is None)


def stop(config, folder, should_stop):
    with training_together(Processes.of()), Run.started(folder, config, resume=True) as run:
        workflow = RunWorkflow.of(run, encode_once(run), should_stop=should_stop)
        with pytest.raises(TimeLimitReached):
            workflow.run()


def test_two_processes_find_what_one_finds_and_resume(tmp_path):
    """With the same number of processes bit for bit; with another number from the same step, to the same results."""
    one = prune(CONFIG, out=tmp_path / "one").frontier
    stop_in_search(CONFIG, tmp_path / "then two")
    [checkpoint] = (tmp_path / "then two").rglob("checkpoint.safetensors")
    stopped = Checkpoint.load(checkpoint).metadata
    assert (stopped["stage"], stopped["epoch"], stopped["step"]) == ("search", 1, 6)
    run_in_processes(run_and_resume, tmp_path)
    prune(CONFIG, out=tmp_path / "then one", resume=True)
    for name in ("two", "then one", "then two"):
        two = read_json(tmp_path / name / "results.json")
        for point, other in zip((one.dense, *one.points), (two["dense"], *two["points"]), strict=True):
            assert other["num_parameters"] == point.num_parameters
            assert other["test_auc"] == pytest.approx(point.test_auc, abs=1e-5)
            assert other["validation_logloss"] == pytest.approx(point.validation_logloss, abs=1e-5)
    for path in (tmp_path / "one").glob("tickets/**/ticket.json"):
        ticket, other = (
            load_ticket(path.parent),
            load_ticket(tmp_path / "two" / path.parent.relative_to(tmp_path / "one")),
        )
        num_equal = sum(int((mask & other.masks[name]).sum()) for name, mask in ticket.masks.items())
        assert num_equal >= 0.999 * ticket.num_parameters
    whole, resumed = (read_json(tmp_path / name / "results.json") for name in ("whole", "resumed"))
    assert resumed["points"] == whole["points"]
    assert resumed["dense"] == whole["dense"]
    for path in (tmp_path / "whole").glob("tickets/**/*.safetensors"):
        assert path.read_bytes() == (tmp_path / "resumed" / path.relative_to(tmp_path / "whole")).read_bytes()


COMMAND = [
    sys.executable,
    "-m",
    "thresher",
    "prune",
    "synthetic",
    "--budgets",
    "10%",
    "-d",
    "4",
    "--processes",
    "2",
    "-q",
]
SETTINGS = ["data.synthetic.num_rows=20000", "training.max_epochs=40", "training.patience=40", "teacher_share=0"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the processes in /proc")
def test_a_killed_process_ends_the_run_with_a_message(tmp_path):
    command = [*COMMAND, "--out", str(tmp_path / "run"), *(word for one in SETTINGS for word in ("--set", one))]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as run:
        checkpoint = tmp_path / "run" / "dense" / "checkpoint.safetensors"
        wait_until(checkpoint.exists)
        os.kill(child_with_rank(run.pid, 1), signal.SIGKILL)
        _, errors = run.communicate(timeout=100)
    assert run.returncode not in (0, None)
    assert "another process of this training ended" in errors
    assert "Process 2 of 2 was ended by the system (SIGKILL)" in errors
    assert checkpoint.exists()


def wait_until(happened):
    for _ in range(1200):
        if happened():
            return
        time.sleep(0.1)
    raise AssertionError("did not happen within two minutes")


def child_with_rank(parent, rank):
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            parts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if int(parts[1]) == parent and f"RANK={rank}".encode() in environment:
            return pid
    raise AssertionError("no such process")
