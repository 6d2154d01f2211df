"""The whole page and its figures: made from result files alone, and honest about what is missing."""

import re

from paper import markdown, page
from paper.make import PARTS, part
from paper.settings import PaperSettings

MINE = ("frontier", "frontier_small", "criteo_small", "pep0_and_lr", "runtime", "data_statistics", "methods_table")


def test_every_part_keeps_the_contract():
    for name in PARTS:
        module = part(name)
        assert isinstance(module.TITLE, str)
        assert isinstance(module.PUBLISHED, str)
        assert all(callable(getattr(module, word)) for word in ("run", "draw", "page", "claims")), name


def test_without_results_nothing_is_drawn_and_the_page_says_how_to_run_each_part(settings):
    parts = {name: part(name) for name in PARTS}
    assert [path for module in parts.values() for path in module.draw(settings)] == []
    text = page.write_page(settings, parts).read_text()
    for name, module in parts.items():
        assert module.TITLE in text
        assert f"make.py --only {name}`" in text


def test_figures_and_page_come_from_result_files_alone(settings, results):
    parts = {name: part(name) for name in MINE}
    drawn = [path for module in parts.values() for path in module.draw(settings)]
    names = {path.name for path in drawn}
    assert all(path.stat().st_size > 1000 for path in drawn)
    assert {
        f"{name}.png" for name in ("frontier-fm", "criteo-small-fm", "pep0-and-lr", "runtime", "data-statistics")
    } <= names
    text = page.write_page(settings, parts).read_text()
    for path in drawn:  # none is drawn in vain
        assert path.suffix != ".png" or f"(images/{path.name})" in text
    assert "25.00×" in text  # the authors' step over the dense base
    assert "5 of its retrainings at theirs, the 60th" in text
    assert "100 (1)" in text


def test_the_page_begins_with_what_holds_of_the_paper_and_links_to_where_it_is_shown(settings, results):
    parts = {name: part(name) for name in PARTS}
    text = page.page_text(settings, parts)
    told = text[text.index("## What holds") : text.index("## What differs")]
    anchors = {page._anchor(line[3:]) for line in text.splitlines() if line.startswith("## ")}
    linked = re.findall(r"\]\(#([a-z0-9-]+)\)", told)
    assert len(linked) >= 4
    assert set(linked) <= anchors
    assert (
        "| yes | FM on MovieLens-1M, time of searching for five sizes: DartsEmb 5.0 (1) times PEP's one search by one "
        "for each size, 3.0 (1) times by one for each set of candidates |"
    ) in told
    assert "| in part | At Criteo's shape under FM, DeepFM, AutoInt, both sides with row updates: 1.25×" in told
    assert "## The lottery ticket\n\nIn the paper: Figure 8;" in text


def test_the_committed_page_is_made_of_the_committed_results():
    made = PaperSettings.of(quick=False)
    parts = {name: part(name) for name in PARTS}
    assert page.page_text(made, parts) == made.page.read_text(encoding="utf-8"), "make.py --draw-only"


def test_a_page_names_every_commit_and_a_changed_tree():
    machine = {"cores": 2, "threads": 1}
    one, other = ({"commit": name, "changed_tree": name == "b", "machine": machine} for name in "ab")
    told = markdown.provenance({"made_with": [one, one]}, {"seeds": {"0": {"made_with": other}, "1": {}}})
    assert told == "Made at commits a, b (changed tree) on 2 cores, 1 in use."
    assert markdown.provenance({}) == ""
