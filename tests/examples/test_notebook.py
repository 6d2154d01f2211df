"""The notebook runs from top to bottom, and is stored with its output."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quickstart.ipynb"
CELLS = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def code_cells():
    return [cell for cell in CELLS if cell["cell_type"] == "code"]


def test_the_notebook_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("IPython", reason="needs IPython: pip install -e '.[docs]'")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for cell in code_cells():
        exec(compile("".join(cell["source"]), NOTEBOOK.name, "exec"), namespace)
    printed = capsys.readouterr().out
    assert "dense" in printed
    assert 0 < namespace["predictor"].predict(namespace["row"]) < 1


def test_outputs_and_a_picture_are_stored():
    outputs = [output for cell in code_cells() for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert any("image/svg+xml" in output.get("data", {}) for output in outputs)


def test_links_of_the_notebook_exist():
    import re

    text = "".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (NOTEBOOK.parent / link).exists(), link
