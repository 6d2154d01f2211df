"""Every example runs as a script, has fewer than 60 lines, and prints sizes and metrics in the expected range."""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SPEC = importlib.util.spec_from_file_location("make_outputs", EXAMPLES.parent / "docs" / "make_outputs.py")
make_outputs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make_outputs)
NEEDS = {"04_deepctr_torch": "deepctr_torch", "05_torch_rechub": "torch_rechub"}


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Run an example without arguments in an empty folder; returns what it prints, which has all lines of its page."""

    def run(name):
        monkeypatch.setattr(sys, "argv", [name])
        folder = tmp_path / "empty"
        folder.mkdir()
        monkeypatch.chdir(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # third-party packages may warn
            runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        assert not list(folder.iterdir()), "an example leaves no files in the folder it is run in"
        printed = capsys.readouterr().out
        shown = (EXAMPLES / "outputs" / f"{name}.txt").read_text(encoding="utf-8")
        lines = make_outputs.lines_shown(shown, printed)
        assert [line for line, other in lines if other is None] == [], f"examples/outputs/{name}.txt is outdated"
        return printed

    return run


def test_every_example_is_run():
    text = Path(__file__).read_text(encoding="utf-8")
    assert [path.stem for path in sorted(EXAMPLES.glob("*.py")) if text.count(f'"{path.stem}"') != 1] == []


def numbers(text, pattern):
    return [float(number.replace(",", "")) for number in re.findall(pattern, text)]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example_has_fewer_than_60_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60


@pytest.mark.slow
def test_your_csv(run):
    printed = run("01_your_csv")
    dense, larger, _ = numbers(printed, r"AUC (\S+)")
    assert larger > dense - 0.02 > 0.9
    assert "probability of a click" in printed


@pytest.mark.slow
def test_your_model(run):
    printed = run("02_your_model")
    dense, larger, _ = numbers(printed, r"AUC (\S+)")
    assert larger > dense - 0.02 > 0.9
    assert numbers(printed, r"(\S+) parameters") == [2560, 512, 128]


def test_your_loop(run):
    printed = run("03_your_loop")
    dense, larger, smaller = numbers(printed, r"accuracy (\S+)")
    assert min(dense, larger) > 0.95
    assert smaller > 0.6
    assert numbers(printed, r"(\S+) parameters") == [16000, 1600, 320]


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_models_from_pypi(name, run):
    pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed (extra: peers)")
    dense, pruned = numbers(run(name), r"AUC ([\d.]+\d)")
    assert pruned > dense - 0.02 > 0.9


def test_embedding_bag(run):
    printed = run("06_embedding_bag")
    dense, larger, smaller = numbers(printed, r"accuracy (\S+)")
    assert min(dense, larger) > 0.95
    assert smaller > 0.6


def test_two_tower(run):
    printed = run("07_two_tower")
    dense, larger, smaller = numbers(printed, r"(0\.\d{4})")
    assert dense > larger > smaller > 0.17  # the share of movies that ten of them are
    assert numbers(printed, r"(\S+) parameters") == [7680, 1536, 384]


@pytest.mark.slow
def test_dlrm_torchrec(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("torchrec", reason="TorchRec is not installed: make torchrec", exc_type=ImportError)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    ended = subprocess.run(
        [*command, str((EXAMPLES / "08_dlrm_torchrec").with_suffix(".py"))],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert min(numbers(ended.stdout, r"dense: accuracy (\d\.\d+)")) > 0.95
    assert min(numbers(ended.stdout, r"5%: accuracy (\d\.\d+)")) > 0.75
    assert len(numbers(ended.stdout, r": ([\d,]+) bytes")) == 2
    shown = (EXAMPLES / "outputs" / "08_dlrm_torchrec.txt").read_text(encoding="utf-8")
    assert [line for line, other in make_outputs.lines_shown(shown, ended.stdout) if other is None] == []
