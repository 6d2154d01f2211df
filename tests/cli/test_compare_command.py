"""thresher compare, and showing its results."""

import json
import re

import pytest

FAST = ["--epochs", "1", "--seeds", "1", "--trials", "1", "-q", "--set", "embedding.embedding_dim=4"]
COMPARE = ("compare", "--no-rival", "--label", "clicked")


def test_compare_prints_points_as_the_last_line(thresher, clicks, tmp_path):
    words = [
        "compare",
        clicks,
        "--no-rival",
        "--label",
        "clicked",
        "--methods",
        "uniform,hash",
        "--budgets",
        "50%",
        "--json",
    ]
    result = thresher(*words, "--out", tmp_path / "c", *FAST)
    assert result.exit_code == 0, result.stderr
    points = json.loads(result.stdout.splitlines()[-1])["points"]
    assert {point["method"] for point in points} == {"uniform", "hash", "lr"}
    assert {"source", "model", "config", "seed", "test_auc", "seconds", "versions", "machine"} <= set(points[0])
    assert "test AUC by budget" in result.stderr
    assert "shares of embedding_dim 4" in result.stderr
    # what is tried, whatever the width asked for
    assert "  hash     embedding_dim 16; and 2 more" in result.stderr
    assert "--trials 1 limits them" in result.stderr
    assert {point["retrain_epochs"] for point in points if point["method"] != "lr"} == {1}
    assert "Not converged after 1 epochs" in result.stderr
    assert (tmp_path / "c" / "frontier-fm.png").exists()
    plain = thresher(*words[:-1], "--out", tmp_path / "c", *FAST)
    assert plain.stdout.splitlines()[0].startswith("fm: test AUC by budget")
    shown = thresher("show", tmp_path / "c")
    assert shown.stdout.endswith(plain.stdout)
    assert json.loads(thresher("show", tmp_path / "c", "--json").stdout)["points"] == points
    drawn = thresher("show", tmp_path / "c", "--figure", tmp_path / "drawn.png")
    assert drawn.exit_code == 0, drawn.stderr
    assert (tmp_path / "drawn.svg").read_bytes() == (tmp_path / "c" / "frontier-fm.svg").read_bytes()
    again = thresher(*words, "--out", tmp_path / "c", *FAST, "--resume")
    assert json.loads(again.stdout.splitlines()[-1])["points"] == points


@pytest.mark.parametrize("floor_done", [False, True])
def test_a_time_limit_names_only_files_that_exist(thresher, clicks, tmp_path, floor_done, monkeypatch):
    words = [
        "compare",
        clicks,
        "--no-rival",
        "--label",
        "clicked",
        "--methods",
        "hash",
        "--budgets",
        "50%",
        "--out",
        tmp_path / "c",
    ]
    points = tmp_path / "c" / "points"
    if floor_done:
        monkeypatch.setattr("thresher.experiment.comparison.sweep.Sweep.time_is_up", lambda _: points.exists())
    result = thresher(*words, "--time-limit", "0.001", *FAST)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "No result of a method yet." in result.stderr
    assert "Stopped at the time limit. The same command continues from here." in result.stderr
    assert ("Results  " in result.stderr) == points.exists() == floor_done
    shown = thresher("show", tmp_path / "c")
    assert shown.exit_code == 0, shown.stderr
    assert re.search(r"^points +\d$", shown.stdout, re.MULTILINE)


def test_a_time_limit_is_above_0(refused, clicks):
    assert "--time-limit -1: must be above 0 seconds" in refused("compare", clicks, "--time-limit", "-1")


def test_one_figure_per_model(thresher, clicks, tmp_path):
    words = [
        "compare",
        clicks,
        "--no-rival",
        "--label",
        "clicked",
        "--methods",
        "hash",
        "--budgets",
        "50%",
        "--models",
        "fm,deepfm",
    ]
    assert thresher(*words, "--out", tmp_path / "c", *FAST).exit_code == 0
    thresher("show", tmp_path / "c", "--figure", tmp_path / "drawn.png")
    for model in ("fm", "deepfm"):
        drawn = (tmp_path / f"drawn-{model}.svg").read_bytes()
        assert drawn == (tmp_path / "c" / f"frontier-{model}.svg").read_bytes()


def test_resume_without_data_can_add_methods_budgets_and_seeds(thresher, clicks, tmp_path):
    words = [*COMPARE, clicks, "--methods", "hash", "--budgets", "50%", *FAST]
    assert thresher(*words, "--out", tmp_path / "c").exit_code == 0
    points = [path for path in (tmp_path / "c" / "points").rglob("*.json") if "hash" in str(path)]
    points[0].unlink()
    go_on = ["compare", "--out", tmp_path / "c", "--resume", "-q", "--json"]

    def seen(*more):
        result = thresher(*go_on, *more)
        assert result.exit_code == 0, result.stderr
        found = json.loads(result.stdout.splitlines()[-1])["points"]
        return {(point["method"], point["budget"], point["seed"]) for point in found}

    assert seen() == {("lr", None, 0), ("hash", "50%", 0)}
    grown = seen("--methods", "hash,uniform", "--budgets", "50%,25%", "--seeds", "2")
    assert {("uniform", "25%", 1), ("hash", "50%", 1), ("lr", None, 1)} <= grown
    points[0].unlink()
    assert seen() == grown  # as it was asked for last


def test_resume_without_data_rejects_options_it_would_ignore(thresher, clicks, tmp_path):
    result = thresher("compare", "--out", tmp_path / "c", "--resume")
    assert result.exit_code == 2
    assert "no comparison to resume" in " ".join(result.stderr.split())
    words = [*COMPARE, clicks, "--methods", "hash", "--budgets", "50%", *FAST]
    assert thresher(*words, "--out", tmp_path / "c").exit_code == 0
    for more in (["--label", "clicked"], ["--epochs", "2"], ["--set", "training.batch_size=64"]):
        result = thresher("compare", "--out", tmp_path / "c", "--resume", *more)
        assert result.exit_code == 2
        assert "name the data, too" in " ".join(result.stderr.split())


def test_unknown_method_fails_before_reading_data(thresher, clicks, tmp_path):
    result = thresher(*COMPARE, clicks, "--methods", "peb", "--out", tmp_path / "c")
    assert result.exit_code == 2
    assert "did you mean 'pep'" in result.stderr
    assert not (tmp_path / "c").exists()


def test_logistic_regression_cannot_be_a_compared_model(thresher, clicks, tmp_path):
    result = thresher(*COMPARE, clicks, "--models", "fm,lr", "--out", tmp_path / "c")
    assert result.exit_code == 2
    assert "'lr' has no embedding" in result.stderr
    assert "part of every comparison, as the floor" in " ".join(result.stderr.split())
    assert not (tmp_path / "c").exists()


def test_show_tickets_of_sizes_and_of_settings(thresher, clicks, tmp_path):
    fast = ["--set", "search.max_epochs=1", "--set", "training.max_epochs=1", "-q"]
    for method, said in (("autodim", "groups of features"), ("mde", "temperature")):
        out = tmp_path / method
        words = ["search", clicks, "--label", "clicked", "--method", method, "-d", "8", "--budgets", "60%"]
        search = thresher(*words, "--out", out, *fast)
        assert search.exit_code == 0, search.stderr
        shown = thresher("show", out / "tickets" / "60pct")
        assert shown.exit_code == 0, shown.stderr
        assert said in shown.stdout


def test_interrupted_comparison_prints_the_resume_command(thresher, clicks, tmp_path, monkeypatch):
    def interrupted(*args, **more):
        raise KeyboardInterrupt

    words = ["compare", str(clicks), "--label", "clicked", "--methods", "hash", "--out", str(tmp_path / "c")]
    monkeypatch.setattr("thresher.experiment.compare.compare", interrupted)
    monkeypatch.setattr("sys.argv", ["thresher", *words])
    result = thresher(*words)
    assert result.exit_code == 130
    assert f"thresher {' '.join(words)} --resume" in result.stderr


@pytest.mark.parametrize(
    "setting", ["rewind=random", "seed=5", "num_teachers=3", "embedding.pressure=decay", "model.name=deepfm"]
)
def test_settings_that_a_comparison_does_not_have(thresher, clicks, tmp_path, setting):
    result = thresher(*COMPARE, clicks, "--set", setting, "--out", tmp_path / "c")
    assert result.exit_code == 2
    assert "A comparison does not have these settings" in " ".join(result.stderr.split())
    assert setting.split("=")[1] in result.stderr
    assert not (tmp_path / "c").exists()


def test_teacher_share_applies_to_all_methods(thresher, clicks, tmp_path):
    words = [
        "compare",
        clicks,
        "--no-rival",
        "--label",
        "clicked",
        "--methods",
        "hash",
        "--budgets",
        "50%",
        "--seeds",
        "1",
    ]
    words += ["--trials", "1", "--epochs", "1", "--json", "--set", "teacher_share=0.5", "--out", tmp_path / "c"]
    points = json.loads(thresher(*words, "--first-seed", "2").stdout.splitlines()[-1])["points"]
    assert {point["seed"] for point in points} == {2}
    assert {point["method"]: point["teacher_share"] for point in points} == {"lr": 0.0, "hash": 0.5}


def test_several_processes_are_refused(thresher, clicks, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = thresher(*COMPARE, clicks, "--methods", "hash", "--budgets", "50%", "--out", tmp_path / "c")
    assert result.exit_code == 2
    assert "compare runs in one process, but torchrun started several" in " ".join(result.stderr.split())
    assert not (tmp_path / "c").exists()
