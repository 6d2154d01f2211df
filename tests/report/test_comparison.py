"""Many methods in one figure and one table."""

import pytest

from thresher.errors import ThresherError
from thresher.report.comparison import comparison_table, plot_comparison
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


def test_the_table_has_mean_and_spread_and_stars_the_best():
    lines = comparison_table(POINTS, ["1k", "500"]).splitlines()
    assert lines[0].split() == ["method", "1k", "500"]
    assert lines[1].split() == ["uniform", "0.7500", "–"]
    assert lines[2] == "pep      0.8100 ± 0.0141*  0.7900*"


def test_the_figure_shows_every_method_and_the_floor(tmp_path):
    written = plot_comparison(
        POINTS, tmp_path / "frontier-fm", floor=[point("lr", None, 0, 0.7)], title="synthetic · fm"
    )
    assert [path.name for path in written] == ["frontier-fm.png", "frontier-fm.svg"]
    svg = written[1].read_text()
    for text in ("uniform", "pep", "lr, no embedding", "test AUC", "synthetic · fm"):
        assert text in svg
    with pytest.raises(ThresherError, match="no point"):
        plot_comparison([], tmp_path / "none")
