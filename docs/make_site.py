"""Build the documentation site: collect the pages in build/docs, run Zensical, and check every link of the result.

    python docs/make_site.py            # build/site
    python docs/make_site.py --serve    # also serve it at http://localhost:8000

The pages of `docs/` are readable as they are. The site adds the changelog, the contributing page, the examples and the
Python API, which is generated from docstrings. Links to other files of the repository become file names.
"""

import ast
import http.server
import re
import shutil
import subprocess
import sys
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MOVED = {"../CHANGELOG.md": "changelog.md", "../CONTRIBUTING.md": "contributing.md", "../README.md": "index.md"}
AREAS = {
    "Runs and comparisons": ("experiment", "report"),
    "Data": ("data",),
    "Your own model": ("attach", "search"),
    "Models and methods": ("models", "embeddings", "baselines"),
    "Training": ("training",),
    "Compact tables, bundles and prediction": ("compact", "serving"),
    "Errors and tests": ("errors", "testing"),
}
"""Pages of the Python API, and the folders of `src/thresher` whose public names they list."""


def public_names() -> dict[str, str]:
    """Public name → module that defines it, from the type stub."""
    tree = ast.parse((ROOT / "src" / "thresher" / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def write_reference(folder: Path) -> list[dict[str, str]]:
    """One page of the Python API per area; returns their entries in the navigation."""
    folder.mkdir(parents=True)
    names, entries = public_names(), []
    for title, stages in AREAS.items():
        own = sorted((name for name, module in names.items() if module.split(".")[1] in stages), key=str.lower)
        parts = [f"# {title}", "All names are imported from `thresher`."]
        parts += [f"::: {names[name]}.{name}" for name in own]
        if title.startswith("Errors"):
            parts += ["::: thresher.errors", "::: thresher.testing"]
        page = re.sub(r"[^a-z]+", "_", title.lower())
        (folder / f"{page}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        entries.append({title: f"reference/{page}.md"})
    return entries


def write_examples(folder: Path) -> list[dict[str, str]]:
    """One page per example: its docstring as text, its code, and what it prints (from `examples/outputs`)."""
    folder.mkdir(parents=True)
    entries = []
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8")
        tree = ast.parse(code)
        text = ast.get_docstring(tree) or path.stem
        first = tree.body[0]
        rest = "\n".join(code.splitlines()[first.end_lineno :]).strip() if ast.get_docstring(tree) else code
        title, _, more = text.partition("\n")
        page = f"# {path.stem[3:].replace('_', ' ').capitalize()}\n\n{title}\n\n"
        page += f"```text\n{more.strip()}\n```\n\n" if more.strip() else ""
        page += f"`examples/{path.name}`:\n\n```python\n{rest}\n```\n\n"
        printed = (path.parent / "outputs" / f"{path.stem}.txt").read_text(encoding="utf-8")
        page += f"It prints:\n\n```text\n{printed.rstrip()}\n```\n"
        (folder / f"{path.stem}.md").write_text(page, encoding="utf-8")
        entries.append({path.stem[3:].replace("_", " ").capitalize(): f"examples/{path.stem}.md"})
    return entries


def site_text(text: str) -> str:
    """A page for the site: links to pages that moved follow them; links to other files become their names."""

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        if target in MOVED:
            return f"[{label}]({MOVED[target]}{anchor})"
        if target.startswith("../examples/") and target.endswith(".py"):
            return f"[{label}](examples/{Path(target).stem}.md)"
        name = target.removeprefix("../")
        return label if f"`{name}`" in label or name in label else f"{label} (`{name}`)"

    return re.sub(r"\[([^\]]*)\]\((\.\./[^)#\s]*)(#[^)]*)?\)", link, text)


def collect(folder: Path) -> dict:
    """Write all pages of the site to a folder; returns the settings of the site with the complete navigation."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for page in folder.glob("*.md"):
        page.write_text(site_text(page.read_text(encoding="utf-8")), encoding="utf-8")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        (folder / name.lower()).write_text(text, encoding="utf-8")
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    made = {"reference/": write_reference(folder / "reference"), "examples/": write_examples(folder / "examples")}
    for section in settings["nav"]:
        for pages in section.values():
            for entry in pages:
                for title, path in entry.items():
                    entry[title] = made.get(path, path)
    return settings


def unlisted_pages(settings: dict, folder: Path) -> list[str]:
    """Pages of the site that the navigation of mkdocs.yml does not list."""
    listed = set(re.findall(r"[\w/]+\.md", str(settings["nav"])))
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*.md") if str(path.relative_to(folder)) not in listed
    )


class _Page(HTMLParser):
    """The ids and the links of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif value and ((tag == "a" and name == "href") or (tag == "img" and name == "src")):
                self.links.append(value)


def broken_links(site: Path) -> list[str]:
    """Links of the site's pages whose file or anchor does not exist."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                broken.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                broken.append(f"{path.relative_to(site)}: {link} (no such anchor)")
    return broken


def build(work: Path) -> tuple[Path, list[str]]:
    """Build the site in a working folder; returns its folder and everything that is wrong with it."""
    settings = collect(work / "docs")
    if others := unlisted_pages(settings, work / "docs"):
        settings["nav"].append({"More": others})
    settings |= {"docs_dir": "docs", "site_dir": "site"}
    for plugin in settings["plugins"]:
        if "mkdocstrings" in plugin:
            plugin["mkdocstrings"]["handlers"]["python"]["paths"] = [str(ROOT / "src")]
    (work / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--config-file", "mkdocs.yml"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        return work / "site", [f"zensical: {done.stdout[-3000:]}{done.stderr[-3000:]}"]
    return work / "site", broken_links(work / "site")


def main() -> int:
    site, wrong = build(ROOT / "build")
    for line in wrong:
        print(line, file=sys.stderr)
    print(f"{len(list(site.rglob('*.html')))} pages in {site}")
    if not wrong and "--serve" in sys.argv:
        handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(site))
        print("http://localhost:8000 (Ctrl-C ends)")
        http.server.ThreadingHTTPServer(("localhost", 8000), handler).serve_forever()
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
