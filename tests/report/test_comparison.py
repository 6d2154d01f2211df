"""The figure and the table of a comparison."""

import pytest

import thresher.report.plots
from thresher.embeddings.method_registry import registered_embeddings
from thresher.errors import ThresherError
from thresher.report.frontier import FrontierPoint
from thresher.report.plots import LOOKS, plot_comparison
from thresher.report.tables import comparison_table


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
    """The two panels of the figure, which is not written."""
    drawn = []
    monkeypatch.setattr(thresher.report.plots, "save_figure", lambda figure, _: drawn.extend(figure.axes) or ())
    return drawn


def labels_in(axes):
    return set(axes.get_legend_handles_labels()[1])


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
