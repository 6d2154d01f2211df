"""Names and versions agree everywhere, and every extra that a message or a page names exists."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import thresher
from thresher._internal.extras import DISTRIBUTION, missing_extra

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINS = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_name_and_version_are_those_of_the_distribution():
    assert PROJECT["name"] == DISTRIBUTION
    assert PROJECT["version"] == thresher.__version__
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == thresher.__version__


def test_a_missing_package_names_the_extra_and_the_distribution():
    message = str(missing_extra("ONNX export", "onnxscript", "onnx"))
    assert message.startswith("ONNX export needs onnxscript. ")
    assert "pip install '.[onnx]'" in message
    assert "pip install 'thresher-embeddings[onnx]'" in message


def test_every_extra_that_is_named_exists():
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r'missing_extra\([^)]*"(\w+)"\)', code))
    for page in PAGES:
        named |= set(re.findall(r"'\.\[(\w+)\]'", page.read_text(encoding="utf-8")))
    assert {"onnx", "lightning"} <= named <= set(PROJECT["optional-dependencies"])


def test_pages_do_not_install_the_other_project_of_this_name():
    for page in [*PAGES, *(ROOT / "src").rglob("*.py")]:
        wrong = re.findall(r"pip install '?thresher(?!-embeddings)\b.*", page.read_text(encoding="utf-8"))
        assert not wrong, f"{page.name}: {wrong}"


def test_every_dependency_is_pinned():
    extras = [name for group in PROJECT["optional-dependencies"].values() for name in group]
    needed = {re.split(r"[<>=\[ ]", text)[0].lower() for text in [*PROJECT["dependencies"], *extras]}
    for file in ROOT.glob("requirements-*.txt"):
        needed |= set(re.findall(r"^[\w-]+", file.read_text(encoding="utf-8"), re.MULTILINE))
    assert {"torchrec", "starlette"} < needed <= {name.lower() for name in PINS}


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(("target", "development"), [("demo", False), ("test", True), ("install", True)])
def test_only_development_installs_tools_and_other_libraries(target, development, tmp_path):
    words = ["make", "--dry-run", "--always-make", target, f"VENV={tmp_path / 'venv'}"]
    commands = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "-e ." in commands
    assert ("[dev" in commands) == development
    assert "--index-url" not in commands
    index = subprocess.run([*words, "TORCH_INDEX=cpu"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert index.index("torch --index-url cpu") < index.index("-e .")
