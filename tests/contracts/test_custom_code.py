"""The module of docs/custom_code.md and docs/custom_source.md works on the command line, and bundles import nothing."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from forged_files import change_json, reseal

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "\n".join((DOCS / name).read_text(encoding="utf-8") for name in ("custom_code.md", "custom_source.md"))
BLOCKS = dict.fromkeys(("python", "sh", "toml"), "")
for language, text in re.findall(r"^```(python|sh|toml)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
    BLOCKS[language] += "" if text.startswith(">>>") else f"{text}\n\n"
COMMANDS = BLOCKS["sh"].replace("\\\n", " ").splitlines()
SHORT = [
    "--set", "training.max_epochs=1", "--set", "search.plan_epochs=1", "--set", "search.warmup_epochs=1",
    "--set", "teacher_share=0", "-q",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with `my_shop.py`, in which every command of the page has run."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "my_shop.py").write_text(BLOCKS["python"], encoding="utf-8")
    (folder / "shop.toml").write_text(BLOCKS["toml"], encoding="utf-8")
    for command in filter(None, COMMANDS):
        stdin, _, words = command.rpartition(" | ")
        trains = words.startswith(("thresher prune", "thresher compare"))
        text = stdin.removeprefix("echo ").strip("'")
        result = run(folder, *shlex.split(words), *(SHORT if trains else []), stdin=text)
        assert result.returncode == 0, (command, result.stderr)
        with (folder / "notes").open("a") as notes:
            notes.write(result.stderr)
    return folder


def run(folder, program, *words, stdin=""):
    """Run a command in a process of its own, in which nothing is registered yet."""
    start = ["-m", "thresher"] if program == "thresher" else []
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}  # as the installed command
    return subprocess.run(
        [sys.executable, *start, *words],
        cwd=folder, env=environment, input=stdin, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_every_command_of_the_page_works(folder):
    assert 'imports = ["my_shop"]' in (folder / "runs/shop/config.toml").read_text()
    assert 'name = "weighted-pairs"' in (folder / "runs/shop/config.toml").read_text()
    assert 'method = "bounded"' in (folder / "runs/bounded/config.toml").read_text()
    assert list((folder / "runs/compared/points/weighted-pairs/bounded").glob("*.json"))
    assert "thresher predict runs/shop/bundles/20pct ROWS.csv --import my_shop" in (folder / "notes").read_text()
    from_file = run(folder, "thresher", "encode", "--config", "shop.toml", "--dry-run")
    assert from_file.returncode == 0, from_file.stderr


@pytest.mark.slow
def test_a_run_imports_its_modules_again(folder):
    assert "weighted-pairs" in run(folder, "thresher", "show", "runs/shop").stdout
    resumed = run(folder, "thresher", "prune", "--out", "runs/shop", "--resume", "-q")
    assert resumed.returncode == 0, resumed.stderr
    elsewhere = run(folder / "runs", "thresher", "show", "shop")
    assert elsewhere.returncode == 2
    assert re.search(r"config.toml:\d+: imports: there is no module 'my_shop'", elsewhere.stderr)
    assert "Traceback" not in elsewhere.stderr


@pytest.mark.slow
def test_a_bundle_imports_nothing(folder, tmp_path):
    """Neither by its own files nor by settings that lie beside it."""
    shutil.copytree(folder / "runs/shop/bundles/20pct", tmp_path / "bundles/20pct")
    shutil.copy(folder / "runs/shop/config.toml", tmp_path)
    (tmp_path / "my_shop.py").write_text("open('imported', 'w').close()")
    manifest = json.loads((tmp_path / "bundles/20pct/bundle.json").read_text())
    manifest["model"]["imports"] = manifest["imports"] = ["my_shop"]
    change_json(tmp_path / "bundles/20pct/bundle.json", manifest)
    reseal(tmp_path / "bundles/20pct")
    script = (
        "from typer.testing import CliRunner\n"
        "from thresher.cli.app import app\n"
        "for words in (['predict', '{b}', '-'], ['show', '{b}'], ['export', '{b}', '--out', 'copy']):\n"
        "    result = CliRunner().invoke(app, words)\n"
        "    assert result.exit_code == 2, (words, result.output)\n"
        "    assert 'got \"weighted-pairs\"' in result.stderr\n"
        "    assert 'hint: Use --import MODULE if a module of yours registers it.' in result.stderr\n"
    )
    result = run(tmp_path, "python", "-c", script.replace("{b}", "bundles/20pct"))
    assert result.returncode == 0, result.stderr
    assert not (tmp_path / "imported").exists()
