"""Quick benchmarks do not overwrite the results under version control."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
QUICK_SCRIPTS = [
    path
    for folder in ("speed", "memory")
    for path in sorted((BENCHMARKS / folder).glob("*.py"))
    if '"--quick"' in path.read_text(encoding="utf-8")
]


@pytest.fixture(scope="module")
def measure():
    spec = importlib.util.spec_from_file_location("speed_sides", BENCHMARKS / "speed" / "measure.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_a_full_run_writes_to_the_results(measure, tmp_path):
    assert measure.result_path("lookup", None, quick=False) == BENCHMARKS / "results" / "lookup.json"
    assert measure.result_path("lookup", None, quick=True) == BENCHMARKS / "temporary" / "quick" / "lookup.json"
    for quick in (False, True):
        assert measure.result_path("lookup", tmp_path / "own.json", quick=quick) == tmp_path / "own.json"


def test_git_ignores_the_results_of_quick_runs(measure):
    if not (BENCHMARKS.parent / ".git").exists():
        pytest.skip("needs the git repository")
    path = measure.result_path("lookup", None, quick=True)
    assert subprocess.run(["git", "check-ignore", "--quiet", path], cwd=BENCHMARKS, check=False).returncode == 0


def test_there_are_quick_scripts():
    assert len(QUICK_SCRIPTS) > 5


@pytest.mark.parametrize("path", QUICK_SCRIPTS, ids=lambda path: path.stem)
def test_every_quick_script_uses_result_path(path):
    text = path.read_text(encoding="utf-8")
    assert "result_path(" in text
    assert "RESULTS" not in text
