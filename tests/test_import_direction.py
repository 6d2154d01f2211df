"""The path of the data is executable: a module imports only from its own stage or from earlier ones."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import thresher

LAYERS = [
    "errors",
    "_internal",
    "kernels",
    "data",
    "embeddings",
    "compact",
    "attach",
    "models",
    "training",
    "search",
    "baselines",
    "serving",
    "server",
    "report",
    "testing",
    "experiment",
    "cli",
    "__main__",
    "integrations",
]

# Stage → what it may take from another stage; anything else of that stage is closed to it.
ONLY = {
    ("embeddings", "data"): {"data.schema"},
    ("models", "embeddings"): {"embeddings.base", "embeddings.method_registry"},
    ("training", "embeddings"): {"embeddings.base"},  # training names no method
}
NEVER = {
    "compact": {"training", "search", "experiment"},
    "serving": {"training", "search", "experiment"},  # serving stays light
    "server": {"training", "search", "experiment"},
}
# Optional or slow to load: imported inside the function that needs them.
INSIDE_FUNCTIONS = {"matplotlib", "onnx", "onnxscript", "onnxruntime", "sklearn", "scipy", "pandas", "pyarrow"}
INSIDE_FUNCTIONS |= {"lightning", "torchrec", "ray", "jinja2", "deepctr_torch", "torchfm", "torch_rechub"}
INSIDE_FUNCTIONS |= {"starlette", "uvicorn", "msgspec", "prometheus_client"}
OWN_EXTRA = {"server": {"starlette", "msgspec"}}  # a stage that only its extra installs

ROOT = Path(thresher.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path) for path in FILES}


@cache
def syntax_tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path, root: Path = ROOT) -> tuple[tuple[str, bool], ...]:
    """Every import of a file, wherever it stands, as (dotted name, whether it runs when the module is loaded)."""
    return tuple(_find_imports(path, root))


def _find_imports(path: Path, root: Path) -> Iterator[tuple[str, bool]]:
    tree = syntax_tree(path)
    deferred = {
        id(node)
        for scope in ast.walk(tree)
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        or (isinstance(scope, ast.If) and "TYPE_CHECKING" in ast.dump(scope.test))
        for node in ast.walk(scope)
    }
    package = ["thresher", *path.relative_to(root).parts[:-1]]
    for node in ast.walk(tree):
        at_load = id(node) not in deferred
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, at_load
        elif isinstance(node, ast.ImportFrom):
            base = [] if node.level == 0 else package[: len(package) - node.level + 1]
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inside = f"{source}.{alias.name}"
                yield inside if inside.removeprefix("thresher.") in MODULES else source, at_load


def own_imports(path: Path) -> set[str]:
    """The modules of ours that a file imports, without the leading `thresher.`."""
    names = {name for name, _ in imports(path)}
    return {name.removeprefix("thresher.") for name in names if name.startswith("thresher.")}


def stage(module: str) -> str:
    return module.split(".")[0]


def test_every_module_belongs_to_a_stage():
    assert {stage(module) for module in MODULES if module} <= set(LAYERS)


def test_every_stage_is_on_the_map():
    page = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    places = [page.find(f"`{name}`") for name in LAYERS if name != "__main__"]
    assert min(places) >= 0, f"docs/architecture.md leaves out {LAYERS[places.index(-1)]}"


def test_imports_go_only_to_the_left():
    for path in FILES:
        module = module_name(path)
        for imported in own_imports(path) if module else ():  # the top level offers names of all stages
            assert LAYERS.index(stage(imported)) <= LAYERS.index(stage(module)), (
                f"{module} imports {imported}, a later stage"
            )


def test_narrower_rules():
    for path in FILES:
        check_narrower_rules(path)


def check_narrower_rules(path: Path) -> None:
    module = module_name(path)
    for imported in own_imports(path):
        if stage(imported) == stage(module):
            continue
        allowed = ONLY.get((stage(module), stage(imported)))
        assert allowed is None or imported in allowed, f"{module} may take only {allowed}, not {imported}"
        assert stage(imported) not in NEVER.get(stage(module), ()), f"{module} must not import {imported}"
        assert stage(imported) not in {"cli", "integrations"} or module == "__main__", (
            f"{module} imports {imported}, which nobody may"
        )
    for name, at_load in imports(path):
        package = name.split(".")[0]
        assert package not in {"benchmarks", "tests", "examples"}
        if at_load and stage(module) != "integrations":
            closed = INSIDE_FUNCTIONS - OWN_EXTRA.get(stage(module), set())
            assert package not in closed, f"{module} loads {package}; import it inside the function"
        if at_load and stage(module) in {"report", "server"}:
            assert package != "torch", f"{module} loads torch; reports and the server do without it"


def test_only_the_version_is_taken_from_the_top_level():
    for path in FILES:
        for node in ast.walk(syntax_tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module == "thresher":
                assert {alias.name for alias in node.names} <= {*MODULES, "__version__"}, path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "thresher":
                assert node.attr == "__version__" or node.attr in MODULES, path


def test_the_check_sees_imports_everywhere(tmp_path):
    """Guards the guard: nested, relative and aliased imports are all found."""
    (tmp_path / "data").mkdir()
    source = tmp_path / "data" / "probe.py"
    source.write_text(
        "import thresher.search.schedule as plan\n"
        "from ..errors import ConfigError\n"
        "from thresher.data import schema\n"
        "from .schema import Schema\n"
        "def f():\n    import matplotlib\n"
    )
    assert set(imports(source, tmp_path)) >= {
        ("thresher.search.schedule", True),
        ("thresher.errors", True),
        ("thresher.data.schema" if "data.schema" in MODULES else "thresher.data", True),
        ("thresher.data.schema", True),
        ("matplotlib", False),
    }
