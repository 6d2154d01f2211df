import io

from rich.console import Console

from thresher.cli import progress as module
from thresher.cli.progress import Bars, Lines
from thresher.training.progress import ProgressState


def state(**changes) -> ProgressState:
    known = {"stage": "search", "max_epochs": 10, "num_steps": 100, "loss": 0.41236, **changes}
    return ProgressState(**known)


def test_lines_show_epochs_and_the_end_of_a_stage(monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)
    out = io.StringIO()
    lines = Lines(Console(file=out, width=200))
    lines.encoding(0, None, "reading")
    lines.encoding(500, None, "reading")
    lines.update(state(epoch=1, step=100, kept_parameters=9000, next_budget="50k"))
    lines.update(state(epoch=2, step=1, kept_parameters=8000, next_budget="50k"))
    lines.update(state(epoch=2, step=100, kept_parameters=500, finished=True))
    lines.update(state(stage="retrain 50k", epoch=1, step=3))
    lines.update(state(stage="retrain 50k", epoch=4, step=3, metric="auc", best=0.84561, finished=True))
    assert out.getvalue().splitlines() == [
        "reading",
        "search: epoch 1/10  loss 0.4124  kept 9,000 → 50k",
        "search: done after epoch 2/10  loss 0.4124  kept 500",
        "retrain 50k: done after epoch 4/10  loss 0.4124  best auc 0.8456",
    ]


def test_lines_are_limited_in_time():
    out = io.StringIO()
    lines = Lines(Console(file=out, width=200))
    for epoch in range(1, 9):
        lines.update(state(epoch=epoch, step=100))
    assert out.getvalue() == ""


def test_bars_show_loss_kept_next_budget_and_time_left(monkeypatch):
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True, color_system=None)
    with Bars(console) as bars:
        bars.encoding(77_057, 77_057, "reading")
        bars.encoding(1000, 4000, "encoding")
        bars.update(state(epoch=1, step=50, kept_parameters=9000, next_budget="50k"))
        bars.update(state(epoch=2, step=50, kept_parameters=8000, next_budget="50k", metric="auc", best=0.8))
    shown = out.getvalue()
    for words in (
        "77.1 KB",
        "encoding",
        "1,000 rows",
        "epoch 2/10",
        "loss 0.4124",
        "kept 8,000 → 50k",
        "best auc 0.8000",
        "left",
    ):
        assert words in shown
    assert not [line for line in shown.splitlines() if "…" in line]


def test_emoji_codes_and_markup_in_stage_names_are_not_replaced():
    out = io.StringIO()
    with Bars(Console(file=out, width=120, force_terminal=True, color_system=None)) as bars:
        bars.update(state(stage="a:smile: [b]", epoch=1, step=50))
    assert "a:smile: [b]" in out.getvalue()


def test_number_of_bars_is_limited():
    out = io.StringIO()
    with Bars(Console(file=out, width=120, force_terminal=True, color_system=None)) as bars:
        for at in range(40):
            bars.update(state(stage=f"cell {at}", epoch=1, step=50))
        assert len(bars._bars.tasks) == module.MAX_BARS
    assert "cell 39" in out.getvalue()
