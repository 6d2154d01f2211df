"""Exit codes and output streams, in real processes."""

import os
import signal
import subprocess
import sys
import time
from functools import wraps

import pytest
import typer

from thresher import __version__
from thresher.cli.compare_command import compare
from thresher.cli.console import handle_errors
from thresher.cli.data_commands import encode
from thresher.cli.predict_command import predict
from thresher.cli.run_commands import prune, retrain
from thresher.errors import (
    DataError,
    FileFormatError,
    LabelError,
    RunExistsError,
    RunNotFoundError,
    TableExistsError,
    WriteError,
    WrongValueError,
)

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}


def run(*words, **more):
    command = [sys.executable, "-m", "thresher", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, **more)


def test_help_has_examples_and_imports_no_heavy_package(thresher):
    code = (
        "import sys; from thresher.cli.app import app; print(sorted({'torch', 'polars', 'numba'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
    for verb in ("demo", "encode", "prune", "search", "retrain", "compare", "export", "predict", "show"):
        printed = thresher(verb, "--help")
        assert printed.exit_code == 0
        assert "Examples" in printed.stdout
        assert f"thresher {verb}" in printed.stdout


def test_version_and_usage_errors(thresher):
    assert run("--version").stdout == f"thresher {__version__}\n"
    unknown = thresher("prun")
    assert unknown.exit_code == 2
    assert "prune" in unknown.stderr
    assert thresher("prune", "--no-such-flag").exit_code == 2


def test_bugs_keep_their_traceback(tmp_path):
    results = tmp_path / "results.json"
    results.write_text("{}")
    code = f"""
import thresher.report.frontier as frontier
frontier.Frontier.load = lambda path: 1 / 0
from thresher.cli.app import app
app(["show", {str(results)!r}])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("words", [["--force"], ["--resume"], ["--force", "--resume"], []])
def test_resume_hint_has_no_force(monkeypatch, capsys, words):
    @handle_errors(resumable=True)
    def command():
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["thresher", "prune", *words, "my clicks.csv"])
    with pytest.raises(typer.Exit):
        command()
    assert capsys.readouterr().err.splitlines()[-1] == "  thresher prune 'my clicks.csv' --resume"


@pytest.mark.parametrize(
    ("command", "error", "hint"),
    [
        (prune, RunExistsError, "Use --resume to continue it, --force to replace it, or --out for another folder."),
        (compare, RunExistsError, "Use --resume to continue it, or --out for another folder."),
        (retrain, WriteError, ""),
        (predict, FileFormatError, ""),
        (encode, TableExistsError, "Use --force to overwrite it, or --out for another folder."),
        (retrain, RunNotFoundError, "Start a run with: thresher prune DATA --out FOLDER"),
    ],
)
def test_hints_name_only_options_of_the_command(capsys, command, error, hint):
    def fail(**_):
        raise error("failed.")

    with pytest.raises(typer.Exit):
        handle_errors()(wraps(command)(fail))()
    assert capsys.readouterr().err == f"error: failed.\n{f'hint: {hint}' if hint else ''}".rstrip() + "\n"


@pytest.mark.parametrize(
    ("error", "settings", "line", "hint"),
    [
        (FileFormatError, {"data.delimiter": "|"}, None, """--set 'data.delimiter="|"'"""),
        (FileFormatError, {"data.encoding": "latin-1"}, 7, """--set 'data.encoding="latin-1"', or --skip"""),
        (LabelError, {}, 7, "--label for the label column, --positive for the values that mean 1, or --skip"),
        (WrongValueError, {}, 7, "the column without a transform if its values are categories, or --skip"),
        (DataError, {}, 7, "--skip"),
    ],
)
def test_hints_follow_the_class_and_the_settings_of_an_error(capsys, error, settings, line, hint):
    def fail(**_):
        raise error("is wrong", file="a.csv", line=line, settings=settings)

    with pytest.raises(typer.Exit):
        handle_errors(skip_flag="--skip")(wraps(prune)(fail))()
    expected = hint + (" to leave such rows out" if line else "")
    assert capsys.readouterr().err.splitlines()[-1] == f"hint: Use {expected}."


@pytest.mark.slow
def test_interrupted_run_can_be_resumed(clicks, tmp_path):
    out = tmp_path / "run"
    words = [
        "prune", clicks, "--out", out, "--budgets", "50", "-d", "4", "--set", "training.max_epochs=2",
        "--set", "search.warmup_epochs=1", "--set", "search.plan_epochs=2000",
    ]  # fmt: skip
    command = [sys.executable, "-m", "thresher", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    until = time.monotonic() + 60
    while not (out / "tickets" / "history.jsonl").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert stdout == ""
    assert "--resume" in stderr.splitlines()[-1]
    assert (out / "tickets" / "checkpoint.safetensors").exists()
    assert run("show", out).returncode == 0


def test_closed_pipe_is_not_an_error(finished, tmp_path):
    head, *lines = finished.source.read_text().splitlines()
    rows = tmp_path / "rows.csv"
    rows.write_text("\n".join([head, *lines * 20]))  # more than a pipe holds
    script = f"{sys.executable} -m thresher predict {finished.out / 'bundles' / '50'} {rows} | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=ENVIRONMENT)
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
