"""The documentation site: it builds, every link leads somewhere, and every public name is documented."""

import importlib.util
import re
from pathlib import Path

import pytest

import thresher

ROOT = Path(__file__).parent.parent.parent
SPEC = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
make_site = importlib.util.module_from_spec(SPEC)


@pytest.fixture(scope="module", autouse=True)
def loaded():
    pytest.importorskip("yaml", reason="needs PyYAML: pip install -e '.[docs]'")
    SPEC.loader.exec_module(make_site)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("zensical", reason="needs zensical: pip install -e '.[docs]'")
    return make_site.build(tmp_path_factory.mktemp("site"))


def test_the_site_has_no_broken_link(site):
    assert site[1] == []


def test_every_public_name_is_in_the_reference(site):
    pages = "".join(path.read_text(encoding="utf-8") for path in (site[0] / "reference").glob("*.html"))
    names = make_site.public_names()
    assert names.keys() == set(thresher.__all__) - {"__version__"}
    missing = [name for name, module in names.items() if f'id="{module}.{name}"' not in pages]
    assert missing == []


def test_broken_links_are_found(tmp_path):
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html">x</a><a href="#here">y</a><a href="#there">z</a>')
    assert make_site.broken_links(tmp_path) == ["a.html: b.html", "a.html: #there (no such anchor)"]


def test_links_to_files_outside_of_the_site_become_names():
    text = "[log](../CHANGELOG.md) [here](../benchmarks/run.py) [`benchmarks/x`](../benchmarks/x) [a](data.md#b)"
    assert make_site.site_text(text) == "[log](changelog.md) here (`benchmarks/run.py`) `benchmarks/x` [a](data.md#b)"


def test_guides_are_short():
    long = {"reproducing_the_paper", "settings"}  # generated
    for page in (ROOT / "docs").glob("*.md"):
        lines = len(page.read_text(encoding="utf-8").splitlines())
        assert page.stem in long or lines <= 150, f"{page.name} has {lines} lines"


def test_messages_of_the_troubleshooting_page_are_in_the_code():
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (`[^|]+`) \|", text, re.MULTILINE)
    assert len(cells) >= 20
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", source)  # sentences that are split over lines
    for part in re.findall(r"`([^`]+)`", "".join(cells)):
        assert part in joined, f"no message contains {part!r}"
