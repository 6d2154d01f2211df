"""The page and its figures are made from result files and state what is missing."""

import re

import performance_page
from paper import markdown, page
from paper.make import PARTS, part
from paper.settings import PaperSettings

PARTS_WITH_RESULTS = (
    "frontier",
    "frontier_small",
    "criteo_small",
    "pep0_and_lr",
    "runtime",
    "data_statistics",
    "methods_table",
)


def test_every_part_has_the_interface():
    for name in PARTS:
        module = part(name)
        assert isinstance(module.TITLE, str)
        assert isinstance(module.PUBLISHED, str)
        assert module.MEASURED.endswith(".")
        assert all(callable(getattr(module, function)) for function in ("run", "draw", "page", "claims")), name


def test_without_results_nothing_is_drawn_and_the_page_has_the_command_of_each_part(settings):
    parts = {name: part(name) for name in PARTS}
    assert [path for module in parts.values() for path in module.draw(settings)] == []
    text = page.write_page(settings, parts).read_text()
    for name, module in parts.items():
        assert module.TITLE in text
        assert f"make.py --only {name}`" in text


def test_figures_and_page_are_made_from_result_files(settings, results):
    parts = {name: part(name) for name in PARTS_WITH_RESULTS}
    drawn = [path for module in parts.values() for path in module.draw(settings)]
    names = {path.name for path in drawn}
    assert all(path.stat().st_size > 1000 for path in drawn)
    assert {
        f"{name}.png" for name in ("frontier-fm", "criteo-small-fm", "pep0-and-lr", "runtime", "data-statistics")
    } <= names
    text = page.write_page(settings, parts).read_text()
    for path in drawn:  # every figure is used
        assert path.suffix != ".png" or f"(images/{path.name})" in text
    assert "25.00×" in text  # the authors' step over the dense base
    assert "5 of its retrainings reached theirs (60)" in " ".join(text.split())
    assert "100 (1)" in text


def test_the_page_starts_with_the_verdicts_and_links_them_to_their_sections(settings, results):
    parts = {name: part(name) for name in PARTS}
    text = page.page_text(settings, parts)
    verdicts = text[text.index("## Which claims") : text.index("## Terms")]
    anchors = {page._anchor(line[3:]) for line in text.splitlines() if line.startswith("## ")}
    linked = re.findall(r"\]\(#([a-z0-9-]+)\)", verdicts)
    assert len(linked) >= 4
    assert set(linked) <= anchors
    assert (
        "| yes | FM on MovieLens-1M, time of searching for five sizes, compared with PEP: DartsEmb with one search per "
        "size takes 5.0 (1) times as long, with one search per set of candidates 3.0 (1) times |"
    ) in verdicts
    assert "| in part | Time of a search step divided by that of a training step, at Criteo's shape, for " in verdicts
    assert "for FM, DeepFM, AutoInt: 1.25×" in verdicts
    assert "## Lottery ticket\n\nPaper: Figure 8;" in text
    assert "\n- **Holds:** One search serves all sizes." in text


def test_the_committed_page_matches_the_committed_results():
    settings = PaperSettings.of(quick=False)
    parts = {name: part(name) for name in PARTS}
    assert page.page_text(settings, parts) == settings.page.read_text(encoding="utf-8"), "make.py --draw-only"


def test_the_committed_performance_page_matches_the_committed_results():
    assert performance_page.page() == performance_page.PAGE.read_text(encoding="utf-8")


def test_provenance_lists_commits_and_uncommitted_changes():
    machine = {"cores": 2, "threads": 1}
    one, other = ({"commit": name, "changed_tree": name == "b", "machine": machine} for name in "ab")
    text = markdown.provenance({"made_with": [one, one]}, {"seeds": {"0": {"made_with": other}, "1": {}}})
    assert text == "Produced at commits a, b (uncommitted changes) on 2 cores with 1 thread."
    assert markdown.provenance({}) == ""
