"""A method of another package (the one in docs/adding_a_method.md) works everywhere without changes to Thresher."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding_a_method.md").read_text(encoding="utf-8")
CODE = re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]


@pytest.fixture
def site(tmp_path):
    """A folder with an installed package that has the method of the page."""
    site = tmp_path / "site"
    metadata = site / "outside_method-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "outside_method.py").write_text(CODE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-method\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[thresher.embeddings]\nscaled = outside_method:ScaledEmbedding\n")
    return site


@pytest.fixture
def python(tmp_path, site):
    """Run Python in a process of its own that sees that package."""
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}

    def run(*words):
        return subprocess.run(
            [sys.executable, *map(str, words)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_by_entry_point_it_is_compared_on_the_command_line(python, tmp_path):
    result = python(
        "-m", "thresher", "compare", "synthetic", "--methods", "scaled,uniform", "--budgets", "50%", "--seeds", "1",
        "--trials", "2", "--epochs", "1", "--json", "-q", "--out", tmp_path / "c",
        "--set", "data.synthetic.num_rows=2000", "--set", "data.synthetic.field_size=20",
        "--set", "embedding.embedding_dim=4",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    points = json.loads(result.stdout.splitlines()[-1])["points"]
    (point,) = [point for point in points if point["method"] == "scaled"]
    assert point["config"]["method"] == "scaled"
    assert {trial["config"]["first_scale"] for trial in point["trials"]} == {1.0, 0.5}  # its own grid
    assert 0 < point["num_parameters"] <= 0.5 * 4 * 8 * 21


def test_by_entry_point_it_passes_the_contract_tests(python):
    suite = [ROOT / "tests" / "contracts" / name for name in ("test_every_embedding.py", "test_every_method_path.py")]
    pytest_words = ["-m", "pytest", "-p", "no:cacheprovider", "-c", ROOT / "pyproject.toml"]
    result = python(*pytest_words, *suite, "-k", "scaled")
    assert result.returncode == 0, result.stdout
    assert " passed" in result.stdout


def test_by_decorator_it_is_available(python):
    script = (
        "import outside_method\n"
        "from thresher.embeddings.method_registry import registered_embeddings\n"
        "from thresher.experiment.comparison.compare_config import CompareConfig\n"
        "from thresher.embeddings.method_registry import method_grid\n"
        "assert registered_embeddings()['scaled'].status == 'experimental'\n"
        "assert CompareConfig(methods=('scaled',)).methods == ('scaled',)\n"
        "assert len(method_grid('scaled')) == 3\n"
    )
    result = python("-c", script)
    assert result.returncode == 0, result.stderr


def test_a_method_that_cannot_be_imported_is_reported_when_used_and_others_still_work(python, site, tmp_path):
    (site / "outside_method.py").write_text("import no_such_module\n")
    words = [
        "-m", "thresher", "prune", "synthetic", "--budgets", "200", "--out", tmp_path / "r", "-q",
        "--set", "data.synthetic.num_rows=2000", "--set", "data.synthetic.field_size=20",
        "--set", "training.max_epochs=1",
    ]  # fmt: skip
    result = python(*words, "--method", "scaled")
    assert result.returncode == 2
    assert "package 'outside-method' declares 'scaled' as 'outside_method:ScaledEmbedding'" in result.stderr
    assert "No module named 'no_such_module'" in result.stderr
    assert "Traceback" not in result.stderr
    other = python(*words, "--method", "uniform", "--set", "embedding.embedding_dim=4")
    assert other.returncode == 0, other.stderr


def test_every_method_has_its_row_in_the_docs():
    from thresher.embeddings.method_registry import registered_embeddings

    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| (stable|experimental) \|", page, re.MULTILINE))
    own_methods = {
        name: registered.status
        for name, registered in registered_embeddings().items()
        if registered.embedding.__module__.startswith("thresher.")
    }
    assert rows == own_methods
