"""README, docs and docstrings: examples run, imports are public, links and file names exist, words are plain."""

import ast
import doctest
import importlib
import pkgutil
import re
import shlex
from pathlib import Path

import pytest

import thresher
from thresher.embeddings.base import embedding_registry
from thresher.models.base import model_registry

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TOLERANCE = 0.01
NEEDS_EXTRAS = ("thresher.integrations",)
PUBLIC_MODULES = {"thresher", "thresher.testing", "thresher.errors", "thresher.baselines"}
PUBLIC_MODULES |= {f"thresher.integrations.{engine}" for engine in ("lightning", "spark", "torchrec")}
UNCLEAR_WORDS = (
    r"by heart|whoever|nobody|taught|teach(?:es|ing)?|lessons?|kin|so many|told|foreign|mend(?:ed)?|facts|announced?|"
    r"Tomorrow's|passes over|goes on|comes to|in fewer bits|takes? up again"
)


@pytest.fixture(autouse=True)
def registries_as_before(monkeypatch):
    """Models and methods that a page registers are forgotten after its test."""
    for registry in (model_registry, embedding_registry):
        monkeypatch.setattr(registry, "_entries", dict(registry.entries()))


class NumberChecker(doctest.OutputChecker):
    """Compares output; measured numbers (three decimals or more) may differ by the tolerance."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        shown, printed = want.split(), got.split()
        return len(shown) == len(printed) and all(map(self._close, shown, printed))

    @staticmethod
    def _close(shown: str, printed: str) -> bool:
        if shown == printed:
            return True
        measured = re.fullmatch(r"-?\d+\.\d{3,}", shown) and re.fullmatch(r"-?\d+\.\d{3,}", printed)
        return bool(measured) and abs(float(shown) - float(printed)) <= TOLERANCE


def blocks(page: Path, language: str) -> list[tuple[int, str]]:
    """(line, text) of each fenced block of a language; `<!-- not run: why -->` above a fence excludes it."""
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


def test_docstring_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    results = {name: doctest.testmod(importlib.import_module(name), optionflags=FLAGS) for name in MODULES}
    assert [name for name, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) > 50


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


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_anchors_exist(page):
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name} links to {path}, which does not exist"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {path}#{anchor}, which does not exist"


def imported_names(code: str) -> set[tuple[str, str | None]]:
    """(module, name) of each import of Thresher, and of each attribute of `thresher` itself."""
    found: set[tuple[str, str | None]] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {(alias.name, None) for alias in node.names if alias.name.split(".")[0] == "thresher"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "thresher":
            found |= {(node.module or "", alias.name) for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "thresher":
            found.add(("thresher", node.attr))
    return found


def code_of(path: Path) -> str:
    """The Python code of an example or of a page, without the expected output."""
    if path.suffix == ".py":
        return path.read_text(encoding="utf-8")
    code = [text for _, text in blocks(path, "python")]
    shown = doctest.DocTestParser()
    return "\n".join("".join(e.source for e in shown.get_examples(t)) if ">>>" in t else t for t in code)


@pytest.mark.parametrize("path", [*PAGES, *sorted((ROOT / "examples").glob("*.py"))], ids=lambda path: path.name)
def test_documentation_imports_only_public_names(path):
    for module, name in imported_names(code_of(path)):
        assert module in PUBLIC_MODULES, f"{path.name} imports {module}"
        if module == "thresher" and name is not None:
            assert name in thresher.__all__, f"{path.name} uses thresher.{name}"


def test_files_and_functions_of_the_architecture_page_exist():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    source, code = Path(thresher.__file__).parent, ""
    for name in set(re.findall(r"`(?!tests/)([a-z_]+(?:/[a-z_]+)*\.py)`", page)):
        assert (source / name).exists(), f"docs/architecture.md names {name}, which does not exist"
        code += (source / name).read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if ".py`" in line and line.startswith("|")]
    for name in {name for row in rows for name in re.findall(r"`([\w.]+)`", row[-1])}:
        last = name.split(".")[-1]
        assert re.search(rf"\b(def|class) {last}\b|^{last} = ", code, re.MULTILINE), f"no file of the page has {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_and_files_in_the_text_exist(page):
    text = page.read_text(encoding="utf-8")
    for dotted in set(re.findall(r"`(thresher(?:\.[A-Za-z_]\w*)+)(?![\w-])", text)):
        if not dotted.startswith(NEEDS_EXTRAS):
            assert pkgutil.resolve_name(dotted), f"{page.name} names {dotted}, which does not exist"
    for path in set(re.findall(r"`(?:python )?((?:src|tests|benchmarks|examples|docs)/[\w./-]*\w/?)[ `]", text)):
        if not path.startswith("benchmarks/temporary"):
            assert (ROOT / path).exists(), f"{page.name} names {path}, which does not exist"


TEXTS = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "src").rglob("*.py"))]


def test_docs_and_source_use_plain_words():
    unclear = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in TEXTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(rf"\b(?:{UNCLEAR_WORDS})\b", re.sub(r"`[^`]*`", "", line))
    ]
    assert unclear == []
