"""Many methods in one figure and one table."""

import pytest

import thresher.report.comparison
from thresher.embeddings.method_registry import registered_embeddings
from thresher.errors import ThresherError
from thresher.report.comparison import LOOKS, comparison_table, plot_comparison
from thresher.report.frontier import FrontierPoint


def point(label, budget, num_parameters, auc, seed=0):
    return FrontierPoint(
        label=label, budget=budget, num_parameters=num_parameters, storage_bytes=4 * num_parameters, seed=seed,
        validation_auc=auc, validation_logloss=0.5, test_auc=auc, test_logloss=0.5,
    )  # fmt: skip


POINTS = [
    point("uniform", None, 4000, 0.80),
    point("uniform", "1k", 1000, 0.75),
    point("pep", "1k", 1000, 0.80),
    point("pep", "1k", 1000, 0.82, seed=1),
    point("pep", "500", 500, 0.79),
]


def test_comparison_table_has_mean_spread_and_a_star_for_the_best():
    lines = comparison_table(POINTS, ["1k", "500"]).splitlines()
    assert lines[0].split() == ["method", "1k", "500"]
    assert lines[1].split() == ["uniform", "0.7500", "–"]
    assert lines[2] == "pep      0.8100 ± 0.0141*  0.7900*"


def test_comparison_figure_shows_every_method_and_the_floor(tmp_path):
    written = plot_comparison(
        POINTS, tmp_path / "frontier-fm", floor=[point("lr", None, 0, 0.7)], title="synthetic · fm"
    )
    assert [path.name for path in written] == ["frontier-fm.png", "frontier-fm.svg"]
    svg = written[1].read_text()
    for text in ("uniform", "pep", "LR, no embedding", "test AUC", "synthetic · fm"):
        assert text in svg
    with pytest.raises(ThresherError, match="no point"):
        plot_comparison([], tmp_path / "none")


@pytest.fixture
def panels(monkeypatch):
    """The two panels of what is drawn, in the place of files."""
    drawn = []
    monkeypatch.setattr(thresher.report.comparison, "save_figure", lambda figure, _: drawn.extend(figure.axes) or ())
    return drawn


def labels_in(axes):
    return set(axes.get_legend_handles_labels()[1])


def test_a_method_can_be_left_out_by_parameters_and_numbers_of_others_are_marks(panels):
    mark = point("paper", None, 2000, 0.81)
    plot_comparison(POINTS, "unused", by_bytes_alone=["uniform"], marks=[mark])
    left, right = panels
    assert labels_in(left) == {"pep", "paper"}
    assert labels_in(right) == {"pep", "uniform"}
    assert {text.get_text() for text in right.get_legend().get_texts()} == {"pep", "uniform", "paper"}
    (star,) = (line for line in left.lines if line.get_label() == "paper")
    assert (list(star.get_xdata()), list(star.get_ydata())) == ([2000], [0.81])


def test_a_figure_ends_so_many_times_peps_range_below_it(panels):
    plot_comparison(POINTS, "unused", depth=0.5)  # from 0.79 to 0.82
    assert panels[0].get_ylim()[0] == pytest.approx(0.775)
    assert panels[0].figure.get_supxlabel() == "Below the axis: uniform (down to 0.7500)"
    panels.clear()
    plot_comparison(POINTS, "unused", depth=50)  # no lower than the lowest point and its marker
    assert 0.745 < panels[0].get_ylim()[0] < 0.7485
    assert not panels[0].figure.get_supxlabel()
    panels.clear()
    at_the_edge = [point("mde", "1k", 900, auc) for auc in (0.7752, 0.7748)]
    for edge in at_the_edge:
        plot_comparison([*POINTS, edge], "unused", depth=0.5)
        assert panels[0].get_ylim()[0] < edge.test_auc - 0.001
        panels.clear()
    plot_comparison([*POINTS, point("mde", "1k", 900, 0.7)], "unused", depth=0.5)
    assert "mde (entirely, down to 0.7000)" in panels[0].figure.get_supxlabel()


def test_every_method_has_its_own_look():
    ours = {
        name for name, found in registered_embeddings().items() if found.embedding.__module__.startswith("thresher.")
    }
    assert ours
    assert ours <= set(LOOKS)
    looks = [look for label, look in LOOKS.items() if label != "dense"]  # a uniform table by another name
    assert len(set(looks)) == len(looks)


def test_user_defined_methods_are_drawn(panels):
    plot_comparison([*POINTS, point("mine", "1k", 1000, 0.8), point("yours", "1k", 1000, 0.8)], "unused")
    assert {"mine", "yours"} <= labels_in(panels[0])
