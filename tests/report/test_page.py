"""A report page is one file: it loads nothing, and names in the data cannot become markup or code."""

import hashlib
import json
import re
from pathlib import Path

import thresher.report.page as page_module
from thresher.report.page import write_page

FILES = Path(page_module.__file__).parent / "page_files"
HOSTILE = "</script><script>alert(1)</script><!-- \u2028 &amp;"


def comparison(**others):
    empty = {"overview": [], "warnings": [], "leaders": [], "tables": [], "points": [], "commands": [], "settings": ""}
    return {"version": "1", "title": "title", "subtitle": "", "test_text": "", "improving": False, **empty, **others}


def test_a_page_is_self_contained_and_small(tmp_path):
    path = write_page(tmp_path / "index.html", "compare", comparison(), {"points": []})
    html = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 2_000_000
    assert re.findall(r"<(?:script|img|iframe)[^>]+src=|<link[^>]+href=\"(?!data:)|@import|url\(http", html) == []
    assert html.count("<script") == html.count("</script>") == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html"]


def test_hostile_names_stay_text(tmp_path):
    content = comparison(title=HOSTILE, warnings=[HOSTILE], settings=HOSTILE)
    html = write_page(tmp_path / "index.html", "compare", content, {"points": [], "name": HOSTILE}).read_text("utf-8")
    assert html.count("<script>alert") == 0
    stored = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1]
    assert json.loads(stored)["name"] == HOSTILE


def test_numbers_that_json_does_not_have_become_null(tmp_path):
    data = {"points": [float("nan"), float("inf"), 0.5], "nested": {"a": (float("-inf"),)}}
    html = write_page(tmp_path / "index.html", "compare", comparison(), data).read_text("utf-8")
    assert '{"points":[null,null,0.5],"nested":{"a":[null]}}' in html


def test_chart_libraries_are_the_recorded_files():
    recorded = re.findall(r"^([0-9a-f]{64})  (\S+)$", (FILES / "vendor" / "README.md").read_text("utf-8"), re.MULTILINE)
    assert {name for _, name in recorded} == {path.name for path in (FILES / "vendor").glob("*.js")}
    for checksum, name in recorded:
        assert hashlib.sha256((FILES / "vendor" / name).read_bytes()).hexdigest() == checksum
    assert all((FILES / "vendor" / f"LICENSE-{name}").exists() for name in ("d3", "plot"))
