"""Result files belong to one set of settings and grow seed by seed."""

import shutil
from dataclasses import replace

import pytest

from paper import experiments, method_comparison, result_files
from paper.settings import EXPERIMENTS, PaperSettings
from thresher._internal.settings import load_toml
from thresher._internal.storage.files import read_json, write_json
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError
from thresher.experiment.config import RunConfig


def test_quick_mode_replaces_results_of_other_settings(settings, monkeypatch):
    rows = SyntheticConfig(num_rows=1500, num_signal_fields=2, num_noise_fields=1, field_size=30)
    monkeypatch.setattr(
        type(settings), "data", lambda self, source: DataConfig(source="synthetic", synthetic=rows), raising=True
    )
    monkeypatch.setattr("paper.settings.QUICK_EPOCHS", 2)

    name, load = "movielens-1m/fm/pep-plan", experiments.load_experiment
    for budget in ("300", "300", "200"):
        changed = replace(load(settings, name), budgets=(budget,))
        monkeypatch.setattr(experiments, "load_experiment", lambda *_, to=changed: to)
        experiments.run_experiment(settings, name, [0])
        found = experiments.read_experiment(settings, name)
        assert [(point.budget, point.num_parameters) for point in found[0].points] == [(budget, int(budget))]


def test_results_stay_valid_with_new_settings_but_not_with_other_values():
    settings_match = experiments.settings_match
    now = RunConfig(effort="paper", budgets=("1%",))
    assert settings_match({"budgets": ["1%"]}, now)
    assert not settings_match({"budgets": ["1%", "2%"]}, now)
    assert not settings_match({"budgets": ["1%"], "gone": 1}, now)
    assert not settings_match({"budgets": ["1%"]}, replace(now, teacher_share=0.0)), "a missing value is the default"


def test_a_result_of_other_settings_is_an_error_and_ignored_in_quick_mode(settings, tmp_path):
    read_matching_result, now = result_files.read_matching_result, RunConfig(effort="paper", budgets=("1%",))
    path, full = tmp_path / "result.json", replace(settings, quick=False)
    assert read_matching_result(full, path, now) == {}
    write_json(path, {"points": {}})  # without settings
    assert read_matching_result(settings, path, now) == {}
    content = {"config": {"budgets": ["1%"]}, "points": {}}
    write_json(path, content)
    assert read_matching_result(full, path, now) == read_matching_result(settings, path, now) == content
    other = replace(now, budgets=("2%",))
    assert read_matching_result(settings, path, other) == {}
    with pytest.raises(ConfigError, match=r"result\.json was made with other settings\. Delete it"):
        read_matching_result(full, path, other)


def test_seeds_are_added_and_all_environments_are_kept(settings, monkeypatch):
    runs = iter([{"commit": "a"}, {"commit": "b"}, {"commit": "b"}])
    monkeypatch.setattr(result_files, "run_environment", lambda: next(runs))
    full, path, config = (
        replace(settings, quick=False),
        settings.results / "part" / "one.json",
        RunConfig(effort="paper"),
    )
    for seeds in ((0,), (0, 1, 2)):
        result_files.compute_missing_seeds(replace(full, seeds=seeds), path, config, lambda seed: {"square": seed**2})
    content = read_json(path)
    assert content["made_with"] == [{"commit": "a"}, {"commit": "b"}]
    assert content["seeds"] == {str(seed): {"square": seed**2} for seed in range(3)}
    assert result_files.read_seeds(path.parent, ("one", "other")) == {"one": [{"square": seed**2} for seed in range(3)]}
    with pytest.raises(ConfigError, match="made with other settings"):
        result_files.compute_missing_seeds(full, path, replace(config, rewind="final"), lambda seed: {})


def test_a_comparison_adds_seeds_to_its_result_file(settings):
    path = settings.results / "frontier" / "fm.json"

    def compare_mde(seeds, budgets=("5k",)):
        method_comparison.compare_method(
            settings, path, "movielens-1m/fm/pep-plan", "mde", budgets, seeds=seeds, trials=1
        )
        return method_comparison.points(path)

    first = compare_mde(1)
    shutil.rmtree(settings.temporary)
    both = compare_mde(2)
    assert both[: len(first)] == first
    assert all(1 <= at["retrain_epochs"] <= 4 for at in both if at["label"] == "mde")  # the maximum of quick mode
    assert [(at["label"], at["seed"]) for at in both] == [("mde", 0), ("lr", 0), ("mde", 1), ("lr", 1)]
    assert not list(settings.temporary.rglob("*seed0*"))  # seed 0 was not trained again
    more = compare_mde(1, ("5k", "9k"))  # all existing seeds get the new budget
    assert {(at["budget"], at["seed"]) for at in more if at["label"] == "mde"} == {
        (budget, seed) for budget in ("5k", "9k") for seed in (0, 1)
    }
    assert read_json(path)["done"]["mde"]["seeds"] == 2
    assert compare_mde(2, ("9k",)) == more
    assert read_json(path)["done"]["mde"]["budgets"] == ["5k", "9k"]
    third = compare_mde(3, ("9k",))  # the new seed gets all existing budgets
    assert {at["budget"] for at in third if (at["label"], at["seed"]) == ("mde", 2)} == {"5k", "9k"}


def test_given_seeds_apply_to_all_parts():
    assert PaperSettings.of(quick=False).plan_seeds == (0, 1, 2, 3, 4)
    assert PaperSettings.of(quick=False, seeds=[0, 1, 2]).plan_seeds == (0, 1, 2)


@pytest.mark.parametrize(
    "path", sorted(EXPERIMENTS.rglob("*.toml")), ids=lambda path: str(path.relative_to(EXPERIMENTS))
)
def test_every_experiment_file_is_valid(path):
    config = load_toml(RunConfig, path)
    if path.parts[-3] in ("criteo", "avazu") and path.stem.startswith("pep-0") | path.stem.startswith("pep-2"):
        assert isinstance(config.embedding, PepConfig)
        assert config.embedding.pressure == "decay"
        assert config.embedding.raw_threshold_init == -150
        assert config.embedding.embedding_dim == 64
        assert config.embedding.granularity == ("feature-dimension" if path.stem == "pep-0-1" else "dimension")
