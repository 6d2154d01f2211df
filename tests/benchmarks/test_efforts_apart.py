"""Results of different efforts are never in one file or one table."""

import shutil
from pathlib import Path

import pytest

import cost_curve
import readme_table
from run import EXPERIMENTS, RESULTS, result_effort
from thresher._internal.settings import load_toml
from thresher._internal.storage.files import read_json, write_json
from thresher.errors import ConfigError
from thresher.experiment.config import RunConfig


def is_run(path: Path) -> bool:
    content = read_json(path)
    seeds = content.get("seeds")
    return "config" in content and isinstance(seeds, dict) and any("points" in seed for seed in seeds.values())


RUNS = sorted(path for path in RESULTS.rglob("*.json") if is_run(path))
EFFORTS = sorted(path for path in RUNS if path.stem.startswith("effort-"))


def test_there_are_results_of_several_efforts():
    assert len(EFFORTS) >= 3
    assert len(RUNS) > len(EFFORTS)


@pytest.mark.parametrize("path", RUNS, ids=lambda path: str(path.relative_to(RESULTS)))
def test_a_result_file_has_the_effort_of_its_name_in_every_seed(path: Path):
    expected = path.stem.removeprefix("effort-") if path in EFFORTS else "paper"
    result = read_json(path)
    assert result_effort(result) == expected
    assert {seed.get("effort") or "paper" for seed in result["seeds"].values()} == {expected}


def test_experiment_files_pin_their_effort():
    for path in EXPERIMENTS.rglob("*.toml"):
        expected = path.stem.removeprefix("effort-") if path.stem.startswith("effort-") else "paper"
        assert load_toml(RunConfig, path).effort == expected, path


def test_the_table_of_the_readme_has_results_of_one_effort():
    found = {result_effort(read_json((RESULTS / row[0]).with_suffix(".json"))) for row in readme_table.ROWS}
    assert found == {"standard"}, "the text below the table says so"


def test_a_result_of_another_effort_is_refused_in_the_table_of_costs(tmp_path, monkeypatch):
    monkeypatch.setattr(cost_curve, "RESULTS", tmp_path)
    folder = tmp_path / "movielens-1m" / "fm"
    folder.mkdir(parents=True)
    shutil.copy(RESULTS / "movielens-1m" / "fm" / "effort-standard.json", folder)
    points = cost_curve.run_points("movielens-1m/fm", "effort-standard")
    assert points
    result = read_json(folder / "effort-standard.json")
    write_json(folder / "effort-fast.json", result)
    with pytest.raises(ConfigError, match=r"effort-fast\.json holds results of effort standard"):
        cost_curve.run_points("movielens-1m/fm", "effort-fast")
    (mixed,) = list(result["seeds"].values())[:1]
    result["seeds"]["7"] = {**mixed, "effort": "paper"}
    write_json(folder / "effort-standard.json", result)
    with pytest.raises(ConfigError, match="holds results of effort paper, standard"):
        cost_curve.run_points("movielens-1m/fm", "effort-standard")
