"""The outputs that README and guides show are what their commands print."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SPEC = importlib.util.spec_from_file_location("make_outputs", ROOT / "docs" / "make_outputs.py")
make_outputs = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make_outputs)


@pytest.mark.slow
def test_pages_show_what_their_commands_print():
    assert make_outputs.main() == []


@pytest.mark.parametrize("page", make_outputs.PAGES)
def test_every_page_shows_an_output(page):
    found = make_outputs.SHOWN.findall((ROOT / page).read_text(encoding="utf-8"))
    assert found
    for block, shown in found:
        assert make_outputs.commands_of(block)
        assert shown.strip()


@pytest.mark.parametrize(
    ("shown", "printed", "close"),
    [
        ("10%  8,896  45.7 KB  0.7368", "10%  8,896  45.9 KB  0.7421", True),
        ("10%  8,896  45.7 KB  0.7368", "10%  8,896  45.9 KB  0.7168", True),
        ("10%  8,896  45.7 KB  0.7368", "10%  8,896  45.9 KB  0.6921", False),
        ("10%  8,896", "10%  4,896", False),
    ],
)
def test_numbers_may_differ_a_little(shown, printed, close):
    assert make_outputs.is_close(shown, printed) is close


def test_lines_that_are_not_printed_are_found():
    shown = "a table\nrows  3,000\ngone  1\n"
    assert make_outputs.lines_shown(shown, "rows  3,100\na table\n") == [
        ("a table", "a table"),
        ("rows  3,000", "rows  3,100"),
        ("gone  1", None),
    ]


def test_new_outputs_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(make_outputs, "ROOT", tmp_path)
    (tmp_path / "page.md").write_text("```sh\nthresher show x\n```\n\n```text\nrows 3\n```\n")
    printed = {"show x": "kind table\nrows 5\n"}
    assert len(make_outputs.compare("page.md", printed, write=False)) == 1
    make_outputs.compare("page.md", printed, write=True)
    assert "rows 5\n" in (tmp_path / "page.md").read_text()
    assert make_outputs.compare("page.md", printed, write=False) == []
