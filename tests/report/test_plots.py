import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from thresher.errors import ThresherError
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.report.plots import label_places, plot_frontier, plot_kept


def point(num_parameters: int, test_auc: float | None, label: str = "pep", **more) -> FrontierPoint:
    return FrontierPoint(
        label=label,
        num_parameters=num_parameters,
        storage_bytes=5 * num_parameters,
        validation_auc=0.8,
        validation_logloss=0.4,
        test_auc=test_auc,
        **more,
    )


def svg_words(path) -> set[str]:
    return {text.strip() for text in ElementTree.parse(path).getroot().itertext() if text.strip()}


def test_frontier_is_written_as_png_and_svg_with_readable_text(tmp_path):
    frontier = Frontier(
        points=(
            point(50_000, 0.85, seed=0, budget="50k"),
            point(50_000, 0.851, seed=1, budget="50k"),
            point(6_500, 0.843, budget="6500"),
            point(16_000, 0.84, label="uniform"),
        ),
        dense=point(264_704, 0.8503, label="dense"),
    )
    png, svg = plot_frontier(frontier, tmp_path / "frontier.v1", title="MovieLens-1M")
    assert (png.name, svg.name) == ("frontier.v1.png", "frontier.v1.svg")
    assert png.read_bytes().startswith(b"\x89PNG")
    words = svg_words(svg)
    assert {"test AUC", "embedding parameters kept", "stored (KB)", "pep", "uniform", "dense", "MovieLens-1M"} <= words
    assert {"10k", "50k", "100k"} <= words


def test_the_same_points_give_the_same_file(tmp_path):
    frontier = Frontier(points=(point(50_000, 0.85), point(6_500, 0.843)))
    _, first = plot_frontier(frontier, tmp_path / "a")
    _, second = plot_frontier(frontier, tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()


def test_a_single_point_can_be_drawn_and_none_cannot(tmp_path):
    plot_frontier(Frontier(points=(point(50_000, 0.85),)), tmp_path / "one")
    with pytest.raises(ThresherError, match="no point has a test AUC"):
        plot_frontier(Frontier(points=(point(50_000, None),)), tmp_path / "none")
    plot_frontier(Frontier(points=(point(50_000, None),)), tmp_path / "validation", split="validation")
    assert not list(tmp_path.glob("none*"))


def test_kept_parameters_over_steps(tmp_path):
    steps, kept = [0, 10, 20, 30], [1000, 1000, 100, 10]
    _, svg = plot_kept(steps, kept, tmp_path / "kept", budgets={"10%": 100, "10": 10})
    assert {"parameters kept", "search step", "kept", "10%"} <= svg_words(svg)
    assert not re.search(r"<dc:date>", svg.read_text())


def test_overlapping_labels_share_a_position():
    counts = {"2%": 39_000, "10%": 196_000, "200KB": 46_000, "3000": 3_000}
    (first, at), (both, between), (last, _) = label_places(counts, apart=0.3)
    assert (first, both, last) == ("10%", "200KB, 2%", "3000")
    assert at == pytest.approx(196_000)
    assert 39_000 < between < 46_000
    assert len(label_places(counts, apart=0.1)) == 4


def test_the_axis_spans_the_noise_and_marks_what_did_not_converge(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("thresher.report.plots.save_figure", lambda figure, stem: drawn.append(figure) or ())
    frontier = Frontier(
        points=(point(50_000, 0.8503, budget="50k"), point(6_500, 0.8500, budget="6500", still_improving=True)),
        dense=point(264_704, 0.8501, label="dense"),
        floor=replace(point(0, 0.849, label="no embedding")),
        metadata={"auc_standard_error": {"test": 0.004}, "source": "clicks.csv", "model": "fm", "seed": 3},
    )
    plot_frontier(frontier, tmp_path / "noise")
    (figure,) = drawn
    for axes in figure.axes:
        low, high = axes.get_ylim()
        assert low <= 0.8501 - 0.004
        assert high >= 0.8501 + 0.004
        assert {text.get_text() for text in axes.texts} == {"0.8503", "0.8500"}
    assert figure.get_suptitle() == "clicks.csv · fm · test AUC · seed 3"
    legend = {text.get_text() for text in figure.axes[0].get_legend().get_texts()}
    assert {"pep", "dense", "no embedding", "not converged", "± 0.0040 standard error"} <= legend
