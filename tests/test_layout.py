"""The size limits of CONTRIBUTING.md, and import cycles: modules that import each other must be read together."""

from collections.abc import Iterator, Mapping

from test_import_direction import FILES, MODULES, ROOT, module_name, own_imports

MAX_LINES = 300
MAX_FILES = 15
MAX_CYCLE = 3


def import_groups(graph: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """The largest sets of modules in which each imports each other one, directly or through others."""
    reached = {module: _reachable(module, graph) for module in graph}
    left = set(graph)
    while left:
        module = min(left)
        group = {module} | {other for other in reached[module] if module in reached[other]}
        left -= group
        if len(group) > 1:
            yield group


def _reachable(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for module in graph[waiting.pop()] - found:
            found.add(module)
            waiting.append(module)
    return found


def test_files_are_short():
    lines = {module_name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    too_long = {module: number for module, number in lines.items() if number > MAX_LINES}
    assert too_long == {}, "one idea per file"


def test_folders_are_small():
    folders = {path.parent for path in FILES}
    sizes = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: size for folder, size in sizes.items() if size > MAX_FILES} == {}


def test_import_cycles_are_small():
    graph = {module_name(path): own_imports(path) & MODULES - {module_name(path)} for path in FILES}
    assert [group for group in import_groups(graph) if len(group) > MAX_CYCLE] == []


def test_import_groups_are_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"a"}}
    assert list(import_groups(graph)) == [{"a", "b", "c"}]
