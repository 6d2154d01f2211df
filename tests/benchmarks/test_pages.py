"""Numbers that are written into pages by hand are those of the result files."""

from pathlib import Path
from statistics import fmean

import pytest

from thresher.files import read_json

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"


def test_the_table_of_models_from_pypi_is_that_of_its_results():
    rows = {}
    for line in (REPOSITORY / "docs" / "plug_in.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[2].startswith("0."):
            rows[tuple(cells[2:])] = cells[:2]
    measured = [seeds["0"] for seeds in read_json(RESULTS / "third_party.json")["models"].values()]
    told = {
        (f"{it['dense']['test_auc']:.4f}", f"{it['5%']['test_auc']:.4f}", f"{it['test_auc_gain']:+.4f}")
        for it in measured
    }
    assert told
    assert set(rows) == told


@pytest.mark.parametrize(
    ("model", "told"), [("fm", ("50k", "20k", "12k", "6541")), ("deepfm", ("8604",)), ("autoint", ("9000",))]
)
def test_the_readmes_numbers_are_those_of_the_experiments(model, told):
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    seeds = read_json(RESULTS / "movielens-1m" / model / "pep-plan.json")["seeds"].values()
    dense = fmean(seed["dense"]["test_auc"] for seed in seeds)
    for budget in told:
        points = [point for seed in seeds for point in seed["points"] if point["budget"] == budget]
        auc, share = fmean(point["test_auc"] for point in points), points[0]["num_parameters"]
        percent = f"{100 * share / read_dense_size(seeds):.2g}"
        beside = f" of the table (dense: {dense:.4f})" if budget == told[0] and model == "fm" else ""
        assert f"{auc:.4f} with {percent} %{beside}" in readme
    assert f"(dense: {dense:.4f}" in readme


def read_dense_size(seeds):
    return next(iter(seeds))["dense"]["num_parameters"]
