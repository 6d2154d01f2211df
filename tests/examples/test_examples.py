"""Every example runs as a script, has fewer than 60 lines, and prints sizes and metrics in the expected range."""

import random
import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {"04_deepctr_torch": "deepctr_torch", "05_torch_rechub": "torch_rechub"}


def run(name, capsys, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # third-party packages may warn
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def numbers(text, pattern):
    return [float(number.replace(",", "")) for number in re.findall(pattern, text)]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example_has_fewer_than_60_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60


@pytest.mark.slow
def test_your_csv(capsys, monkeypatch):
    printed = run("01_your_csv", capsys, monkeypatch)
    dense, larger, _ = numbers(printed, r"AUC (\S+)")
    assert larger > dense - 0.02 > 0.9
    assert "probability of a click" in printed


@pytest.mark.slow
def test_your_model(capsys, monkeypatch):
    printed = run("02_your_model", capsys, monkeypatch)
    dense, larger, _ = numbers(printed, r"AUC (\S+)")
    assert larger > dense - 0.02 > 0.9
    assert numbers(printed, r"(\S+) parameters") == [2560, 512, 128]


def test_your_loop(capsys, monkeypatch):
    printed = run("03_your_loop", capsys, monkeypatch)
    dense, larger, smaller = numbers(printed, r"accuracy (\S+)")
    assert min(dense, larger) > 0.95
    assert smaller > 0.6
    assert numbers(printed, r"(\S+) parameters") == [16000, 1600, 320]


@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_models_from_pypi(name, capsys, monkeypatch):
    pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed (extra: peers)")
    dense, pruned = numbers(run(name, capsys, monkeypatch), r"AUC ([\d.]+\d)")
    assert pruned > dense - 0.02 > 0.9


def test_embedding_bag(capsys, monkeypatch):
    printed = run("06_embedding_bag", capsys, monkeypatch)
    dense, larger, smaller = numbers(printed, r"accuracy (\S+)")
    assert min(dense, larger) > 0.95
    assert smaller > 0.6


def test_two_tower(capsys, monkeypatch, tmp_path):
    """Generated ratings: users with an even id like movies with an even id, the others those with an odd id."""
    draw = random.Random(0)
    ratings = tmp_path / "ratings.dat"
    rows = [(user, movie) for user in range(60) for movie in draw.sample(range(60), 30)]
    lines = [f"{u}::{m}::{5 if u % 2 == m % 2 else 2}::{time}" for time, (u, m) in enumerate(rows)]
    ratings.write_text("\n".join(lines) + "\n")
    printed = run("07_two_tower", capsys, monkeypatch, ratings)
    rates = numbers(printed, r"(0\.\d{4})")
    assert rates[0] > 0.3  # random ranking: one in five, ten of fifty movies
    assert len(rates) == 3
    assert numbers(printed, r"(\S+) parameters")[0] == 120 * 64
