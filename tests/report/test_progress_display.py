import io
import logging
import re

import pytest
from rich.console import Console

from thresher.cli.console import print_logs
from thresher.report import notes as notes_module, progress_display as module
from thresher.report.notes import print_note
from thresher.report.progress_display import Bars, Lines, Row
from thresher.training.progress import ProgressState


def state(**changes) -> ProgressState:
    known = {"stage": "search", "max_epochs": 10, "num_steps": 100, "loss": 0.41236, **changes}
    return ProgressState(**known)


@pytest.fixture
def clock(monkeypatch):
    """The time of the display, in seconds; `clock[0] += 5` lets five seconds pass."""
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def new_console(width: int = 120) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)


def final_lines(console: Console) -> list[str]:
    """What is on the screen in the end, after all control codes."""
    screen, row = [""], 0
    for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\n|\r|[^\x1b\n\r]+", console.file.getvalue()):
        if part == "\n":
            row += 1
            screen += [""] * (row + 1 - len(screen))
        elif part == "\x1b[1A":
            row -= 1
        elif part == "\x1b[2K":
            screen[row] = ""
        elif part[0] not in "\x1b\r":
            screen[row] += part
    return [line.rstrip() for line in screen if line.strip()]


def test_lines_show_epochs_and_the_end_of_a_stage(clock):
    out = io.StringIO()
    lines = Lines(Console(file=out, width=200))
    lines.encoding(0, None, "reading")
    lines.encoding(500, None, "reading")
    lines.update(state(epoch=1, step=0, planned_epochs=4.0))
    clock[0] += 10
    lines.update(state(epoch=1, step=100, kept_parameters=9000, next_budget="50k", planned_epochs=4.0))
    lines.update(state(epoch=2, step=0, kept_parameters=8000, next_budget="50k", planned_epochs=4.0))
    clock[0] += 10
    lines.update(state(epoch=2, step=100, kept_parameters=500, finished=True))
    lines.update(state(stage="retrain 50k", epoch=1, step=3, group="1/4 · fm · pep"))
    last = {"epoch": 4, "step": 3, "metric": "auc", "best": 0.84561, "finished": True}
    lines.update(state(stage="retrain 50k", group="1/4 · fm · pep", **last))
    lines.update(state(stage="predicts", max_epochs=1, loss=None, finished=True))
    assert out.getvalue().splitlines() == [
        "reading",
        "search: running, about 0:30 left  kept 9,000 → 50k  epoch 1/4  loss 0.4124",
        "search: done in 0:20  kept 500  2 epochs  loss 0.4124",
        "1/4 · fm · pep",
        "  retrain 50k: done in 0:00  4 epochs  best auc 0.8456  loss 0.4124",
        "predicts: done in 0:00",
    ]


def test_lines_are_limited_in_time():
    out = io.StringIO()
    lines = Lines(Console(file=out, width=200))
    for epoch in range(1, 9):
        lines.update(state(epoch=epoch, step=100))
    assert out.getvalue() == ""


def test_bars_show_kept_next_budget_loss_and_time_left(clock):
    console = new_console()
    with Bars(console) as bars:
        bars.encoding(77_057, 77_057, "reading")
        bars.encoding(1000, 4000, "encoding")
        bars.update(state(epoch=1, step=0, planned_epochs=4.0))
        clock[0] += 10
        bars.update(state(epoch=2, step=0, kept_parameters=8000, next_budget="50k", planned_epochs=4.0))
        bars._live.refresh()
        (running,) = [line for line in console.file.getvalue().split("\n") if "left" in line]
    assert "about 0:30 left" in running
    assert running.rstrip().endswith("kept 8,000 → 50k  epoch 2/4  loss 0.4124")
    reading, encoding, search = final_lines(console)
    assert reading.split() == ["reading", "━" * 16, "0:00", "77.1", "KB"]
    assert encoding.split() == ["encoding", "━" * 16, "0:00", "1,000", "rows"]
    assert search.split()[0] == "search"


def test_a_stage_that_runs_twice_has_two_lines_with_their_own_times(clock):
    console = new_console()
    with Bars(console) as bars:
        for seconds in (20, 5):
            bars.update(state(epoch=1, step=0))
            clock[0] += seconds
            bars.update(state(epoch=3, step=100, finished=True))
            clock[0] += 100  # between the stages
    assert [line.split()[2] for line in final_lines(console)] == ["0:20", "0:05"]


def test_a_stage_that_starts_again_without_an_end_is_a_new_line(clock):
    console = new_console()
    with Bars(console) as bars:
        bars.update(state(epoch=3, step=50))
        clock[0] += 7
        bars.update(state(epoch=1, step=0))
        clock[0] += 2
        bars.update(state(epoch=2, step=0, finished=True))
    assert [line.split()[2] for line in final_lines(console)] == ["0:07", "0:02"]


def test_notes_and_log_messages_stay_above_the_bar(monkeypatch):
    """Messages such as those of kernels being compiled were overwritten, and the bar repeated."""
    console = new_console(width=80)
    monkeypatch.setattr(notes_module, "stderr", lambda: console)
    print_logs()
    with Bars(console) as bars:
        bars.encoding(10, 10, "reading")
        bars._live.refresh()
        logging.getLogger("thresher.kernels").info("compiling kernel x")
        bars._live.refresh()
        print_note("a note")
        bars.update(state(epoch=1, step=50))
        bars._live.refresh()
    lines = [line.split()[0] for line in final_lines(console)]
    assert lines == ["compiling", "a", "reading", "search"]


def test_notes_use_the_console_of_the_bar():
    assert notes_module.stderr() is notes_module.stderr()


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", ["search", "retrain 20%, soft labels", "a very long name of a stage " * 4])
def test_a_row_fits_on_one_line_and_shows_bar_and_time(width, name):
    console = new_console(width)
    row = Row(name, 0.0, seconds_left=125.0, share=0.3, details=["kept 64,128 → 20%", "epoch 19/28", "loss 0.4124"])
    console.print(row.render(width, 10.0))
    (line,) = console.file.getvalue().splitlines()
    assert len(line) <= width
    if width >= 80:
        assert "about 2:05 left" in line
        assert "━" in line
        assert "kept 64,128 → 20%" in line
        assert ("epoch 19/28  loss 0.4124" in line) == (width == 120)


def test_the_stages_of_a_comparison_are_below_the_name_of_their_method():
    console = new_console(width=80)
    title = "1/30 · autoint · iterative-magnitude · seed 0 · trial 1/3: embedding_dim 128, round_keep_share 0.5"
    with Bars(console) as bars:
        bars.update(state(group=title))
        bars.update(state(group=title, stage="retrain 20%", finished=True))
        bars.update(state(group="2/30 · fm", finished=True))
    first, search, retrain, second, other = final_lines(console)
    assert first == f"{title[:79]}…"
    assert second == "2/30 · fm"
    assert [line[:14].rstrip() for line in (search, retrain, other)] == ["  search", "  retrain 20%", "  search"]
    assert all("━" in line and "0:00" in line for line in (search, retrain, other))


def test_emoji_codes_and_markup_in_stage_names_are_not_replaced():
    console = new_console()
    with Bars(console) as bars:
        bars.update(state(stage="a:smile: [b]", epoch=1, step=50))
    assert "a:smile: [b]" in console.file.getvalue()


def test_an_interrupted_stage_keeps_its_share():
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system="truecolor")
    bars = Bars(console)
    bars.update(state(epoch=6, step=0))
    bars.__exit__(KeyboardInterrupt, None, None)
    (line,) = [line for line in console.file.getvalue().split("\n") if "search" in line]
    done, rest = line.split("╺")
    assert (done.count("━"), rest.count("━")) == (8, 7)  # half of the bar
