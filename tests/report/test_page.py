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
    empty = {
        "overview": [],
        "warnings": [],
        "leaders": [],
        "tables": [],
        "points": [],
        "unmet": [],
        "commands": [],
        "settings": "",
    }
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


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted([luminance(one), luminance(other)])
    return (lighter + 0.05) / (darker + 0.05)


def test_colours_have_the_contrast_that_wcag_asks_for_in_light_and_dark():
    css = (FILES / "style.css").read_text(encoding="utf-8")
    schemes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part)) for part in re.findall(r":root \{([^}]*--[^}]*)\}", css)
    ]
    assert len(schemes) == 2
    for colours in schemes:
        for text in ("text", "quiet", "accent", "good", "c1"):
            assert contrast(colours[text], colours["page"]) >= 4.5, text
        for ground in ("panel", "warn", "mark"):
            assert contrast(colours["text"], colours[ground]) >= 4.5, ground
        assert contrast(colours["quiet"], colours["panel"]) >= 4.5
        for line in ("c0", "c1", "c2", "c3", "c4", "c5"):
            assert contrast(colours[line], colours["page"]) >= 3, line
