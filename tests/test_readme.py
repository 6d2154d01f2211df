"""Every example a reader may copy is run: README, docs and docstrings."""

import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

import thresher

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TOLERANCE = 0.01
NEEDS_EXTRAS = ("thresher.integrations",)


class NumberChecker(doctest.OutputChecker):
    """Output as shown, but for measured numbers (three decimals or more), which may differ a little by machine."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        shown, printed = want.split(), got.split()
        return len(shown) == len(printed) and all(map(self._alike, shown, printed))

    @staticmethod
    def _alike(shown: str, printed: str) -> bool:
        if shown == printed:
            return True
        measured = re.fullmatch(r"-?\d+\.\d{3,}", shown) and re.fullmatch(r"-?\d+\.\d{3,}", printed)
        return bool(measured) and abs(float(shown) - float(printed)) <= TOLERANCE


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """(line, text) of each fenced block of a language; `<!-- not run: why -->` above a fence leaves it out."""
    text = page.read_text(encoding="utf-8")
    fences = rf"(<!-- not run: [^>]+ -->\n)?^```{language}\n(.*?)^```$"
    matches = re.finditer(fences, text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start()) + 1, match[2]) for match in matches if match[1] is None]


def shell_commands(page: Path) -> list[tuple[int, list[str]]]:
    """(line, words) of each `thresher …` command in a page's shell blocks, continued lines joined."""
    commands = []
    for line, text in blocks(page, "sh"):
        for i, command in enumerate(text.replace("\\\n", "  ").splitlines()):
            words = shlex.split(command.removeprefix("$ "), comments=True)
            if words[:1] == ["thresher"]:
                commands.append((line + 1 + i, words[1:]))
    return commands


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_blocks_run(page, tmp_path, monkeypatch):
    """Blocks of a page run in order in one namespace, in an empty folder; `>>>` blocks must print what is shown."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line, text in blocks(page, "python"):
        if text.lstrip().startswith(">>>"):
            example = doctest.DocTestParser().get_doctest(text, namespace, page.name, str(page), line)
            runner = doctest.DocTestRunner(checker=NumberChecker(), optionflags=FLAGS)
            runner.run(example, clear_globs=False)
            namespace = example.globs
            assert runner.failures == 0, f"{page.name}:{line}: the output shown is not what is printed"
        else:
            exec(compile("\n" * line + text, str(page), "exec"), namespace)


MODULES = [
    module.name
    for module in pkgutil.walk_packages(thresher.__path__, "thresher.")
    if not module.name.startswith(NEEDS_EXTRAS)
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(importlib.import_module(name), optionflags=FLAGS).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shell_commands_parse(page):
    """Each `thresher …` command names an existing verb and flags; it is not run."""
    from typer.main import get_command

    from thresher.cli.app import app

    commands = get_command(app).commands
    for line, words in shell_commands(page):
        assert words[0] in commands, f"{page.name}:{line}: there is no command {words[0]!r}"
        try:
            commands[words[0]].make_context(words[0], words[1:])
        except Exception as error:
            pytest.fail(f"{page.name}:{line}: thresher {shlex.join(words)}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"
