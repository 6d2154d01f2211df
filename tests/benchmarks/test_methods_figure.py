"""The figure of methods with published results and a lower limit of the AUC axis."""

import pytest

import thresher.report.plots
from paper.figures.methods import plot_methods
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


@pytest.fixture
def panels(monkeypatch):
    """The two panels of the figure, which is not written."""
    drawn = []
    monkeypatch.setattr(thresher.report.plots, "save_figure", lambda figure, _: drawn.extend(figure.axes) or ())
    return drawn


def labels_in(axes):
    return set(axes.get_legend_handles_labels()[1])


def test_methods_drawn_by_bytes_alone_and_published_marks(panels):
    mark = point("paper", None, 2000, 0.81)
    plot_methods(POINTS, "unused", by_bytes_alone=["uniform"], marks=[mark], depth=50)
    left, right = panels
    assert labels_in(left) == {"pep", "paper"}
    assert labels_in(right) == {"pep", "uniform", "paper"}
    assert {text.get_text() for text in right.get_legend().get_texts()} == {"pep", "uniform", "paper"}
    (star,) = (line for line in left.lines if line.get_label() == "paper")
    assert (list(star.get_xdata()), list(star.get_ydata())) == ([2000], [0.81])


def test_lower_limit_of_the_auc_axis(panels):
    plot_methods(POINTS, "unused", depth=0.5)  # from 0.79 to 0.82
    assert panels[0].get_ylim()[0] == pytest.approx(0.775)
    assert panels[0].figure.get_supxlabel() == "Below the axis: uniform (down to 0.7500)"
    panels.clear()
    plot_methods(POINTS, "unused", depth=50)  # no lower than the lowest point and its marker
    assert 0.745 < panels[0].get_ylim()[0] < 0.7485
    assert not panels[0].figure.get_supxlabel()
    panels.clear()
    at_the_edge = [point("mde", "1k", 900, auc) for auc in (0.7752, 0.7748)]
    for edge in at_the_edge:
        plot_methods([*POINTS, edge], "unused", depth=0.5)
        assert panels[0].get_ylim()[0] < edge.test_auc - 0.001
        panels.clear()
    plot_methods([*POINTS, point("mde", "1k", 900, 0.7)], "unused", depth=0.5)
    assert "mde (entirely, down to 0.7000)" in panels[0].figure.get_supxlabel()
