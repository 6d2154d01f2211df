"""A small file of clicks, and the command line called in this process."""

import random
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from thresher.cli.app import app

FAST = ["--set", "training.max_epochs=3", "--set", "search.warmup_epochs=1", "--set", "search.plan_epochs=2", "-d", "4"]


@pytest.fixture
def clicks(tmp_path) -> Path:
    path = tmp_path / "clicks.csv"
    path.write_text(clicks_text())
    return path


def clicks_text(num_rows: int = 1500) -> str:
    draw = random.Random(0)
    lines = ["clicked,user_id,item_id,price"]
    for _ in range(num_rows):
        user, item = draw.randrange(50), draw.randrange(60)
        clicked = int(draw.random() < (0.8 if user % 2 == item % 2 else 0.2))
        lines.append(f"{clicked},u{user},i{item},{draw.expovariate(0.05):.2f}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def _finished(tmp_path_factory) -> tuple[Path, str, str]:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "clicks.csv").write_text(clicks_text())
    source, out = folder / "clicks.csv", folder / "run"
    words = ["prune", source, "--label", "clicked", "--budgets", "20%,50", "--out", out, *FAST]
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return folder, result.stdout, result.stderr


@dataclass(frozen=True)
class FinishedRun:
    """A copy of a finished run, and the output of `thresher prune`."""

    out: Path
    source: Path
    stdout: str
    stderr: str

    @property
    def words(self) -> list[str]:
        """The command of the run, with the folder of the copy."""
        return ["prune", str(self.source), "--label", "clicked", "--budgets", "20%,50", "--out", str(self.out), *FAST]


@pytest.fixture
def finished(_finished, tmp_path) -> FinishedRun:
    folder, stdout, stderr = _finished
    shutil.copytree(folder / "run", tmp_path / "run")
    return FinishedRun(tmp_path / "run", folder / "clicks.csv", stdout, stderr)


@pytest.fixture
def thresher(monkeypatch) -> Callable:
    """`thresher("prune", "x.csv")` → result with exit_code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "100")

    def call(*words: str | Path, stdin: str | None = None):
        result = CliRunner().invoke(app, [str(word) for word in words], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture
def refused(thresher) -> Callable:
    """Call a command that must fail with exit code 2, one message and no traceback; returns the message."""

    def call(*words: str | Path, stdin: str | None = None) -> str:
        result = thresher(*words, stdin=stdin)
        assert result.exit_code == 2, (result.exit_code, result.stdout, result.stderr)
        assert "Traceback" not in result.stderr
        _, *messages = re.split(r"^(?=error:)", result.stderr, flags=re.MULTILINE)
        assert len(messages) == 1
        return messages[0].strip()

    return call


@pytest.fixture
def fast() -> Sequence[str]:
    """Settings of a run that takes a second."""
    return FAST
