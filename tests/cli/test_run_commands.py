import json
from dataclasses import replace

import pytest

from thresher.cli import run_commands
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.experiment.run.run_folder import Run
from thresher.models.fm import DeepFmConfig, LogisticRegressionConfig
from thresher.report.frontier import Frontier

pytestmark = pytest.mark.usefixtures("without_pictures")


def test_prune_output_and_files(finished):
    out = finished.out
    for title in ("budget", "meters", "bytes", "bundle", "of dense", "dation", "AUC", "logloss"):
        assert title in finished.stdout
    rows = [line.split()[0].removesuffix("†") for line in finished.stdout.splitlines() if line]
    start = rows.index("dense")
    assert rows[start - 1 : start + 4] == ["no", "dense", "20%", "50", "Shares"]
    assert "retrain 50: done" in finished.stderr
    assert "user_id" in finished.stderr  # what was guessed is shown
    results = json.loads((out / "results.json").read_text())
    assert [point["budget"] for point in results["points"]] == ["20%", "50"]
    assert results["points"][1]["num_parameters"] == 50
    assert {"validation_auc", "test_auc", "storage_bytes"} <= set(results["dense"])
    for path in ("report/frontier.png", "report/frontier.svg", "config.toml", "encoded/schema.json", "bundles/20pct"):
        assert (out / path).exists(), path


def test_json_is_one_document(thresher, clicks, fast, tmp_path):
    result = thresher("prune", clicks, "--budgets", "50", "--out", tmp_path / "run", "--json", "--quiet", *fast)
    content = json.loads(result.stdout)
    assert content["points"][0]["budget"] == "50"
    assert content["bundles"]["50"].endswith("50")


def test_search_then_retrain_equals_prune(finished, thresher, clicks, fast, tmp_path):
    pruned, out = finished.out, tmp_path / "apart"
    searched = thresher("search", clicks, "--label", "clicked", "--budgets", "20%,50", "--out", out, "--json", *fast)
    tickets = json.loads(searched.stdout)["tickets"]
    assert [ticket["num_parameters"] for ticket in tickets][1] == 50
    assert not (out / "results.json").exists()
    clicks.unlink()  # retraining needs the encoded table only
    retrained = thresher("retrain", out)
    assert retrained.exit_code == 0
    apart, whole = Frontier.load(out / "results.json"), Frontier.load(pruned / "results.json")
    assert (apart.dense, apart.points) == (whole.dense, whole.points)


def test_distilled_search_has_its_own_folder_and_is_resumed(thresher, clicks, fast, tmp_path):
    out, distilled = tmp_path / "run", ["--set", "teacher_share=1", "--set", "distill_search=true"]
    words = ["search", clicks, "--label", "clicked", "--budgets", "50", "--out", out, "--json", *fast, *distilled]
    first = thresher(*words)
    (ticket,) = json.loads(first.stdout)["tickets"]
    assert ticket["folder"] == str(out / "tickets" / "soft-labels-1" / "50")
    assert "search, soft labels: done" in first.stderr
    assert json.loads(thresher(*words, "--resume").stdout)["tickets"] == [ticket]
    assert json.loads(thresher("show", out, "--json").stdout)["tickets"] == [ticket["folder"]]
    assert thresher("retrain", out).exit_code == 0
    assert Frontier.load(out / "results.json").metadata["distillation"] == {"share": 1.0, "search_share": 1.0}


def test_distillation_trials_are_reported(finished):
    tried = Frontier.load(finished.out / "results.json").metadata["distillation"]["validation_auc"]
    assert f"Validation AUC of a short trial: {tried['hard-labels']:.4f} hard labels; " in finished.stderr
    assert f"{tried['soft-labels-1-in-search']:.4f} distillation in search and retraining" in finished.stderr


def test_the_cost_of_every_stage_is_printed_and_shown(finished, thresher):
    cost = Frontier.load(finished.out / "results.json").metadata["cost"]
    for text in (finished.stderr, thresher("show", finished.out).stdout):
        lines = [line.split() for line in text.splitlines()]
        assert ["total", f"{cost['total_seconds']:.1f}", f"{cost['total_over_dense']:.2f}"] in lines
        assert any(line[:1] == ["search"] for line in lines)


def test_effort_is_a_setting(thresher, clicks, fast, tmp_path):
    out = tmp_path / "run"
    result = thresher("prune", clicks, "--budgets", "20%", "--effort", "fast", "--out", out, *fast)
    assert result.exit_code == 0, result.stderr
    assert Run.open(out).config.effort == "fast"
    assert 'expected one of "fast", "standard"' in " ".join(
        thresher("prune", clicks, "--effort", "quick").stderr.split()
    )


def test_effective_config_is_saved(finished, thresher, tmp_path):
    out = finished.out
    config = Run.open(out).config
    assert config.training.max_epochs == 3
    assert config.budgets == ("20%", "50")
    again = tmp_path / "again"
    result = thresher("prune", "--config", out / "config.toml", "--seed", "1", "--out", again)
    assert result.exit_code == 0
    assert Run.open(again).config.seed == 1
    assert Run.open(again).config.data == config.data


def test_further_teacher_models(thresher, clicks, fast, tmp_path):
    out = tmp_path / "run"
    options = ["--budgets", "20%", "--teachers", "deepfm, lr", "--set", "teacher_share=1"]
    result = thresher("prune", clicks, *options, "--out", out, *fast)
    assert result.exit_code == 0, result.stderr
    assert Run.open(out).config.teacher_models == (DeepFmConfig(), LogisticRegressionConfig())
    assert "with mean soft labels of 3 dense models (with deepfm, lr), as set." in result.stderr


def test_max_auc_drop_recommends_on_validation(thresher, clicks, fast, tmp_path):
    out = tmp_path / "run"
    result = thresher("prune", clicks, "--max-auc-drop", "0.3", "--out", out, *fast)
    assert result.exit_code == 0, result.stderr
    frontier = Frontier.load(out / "results.json")
    assert frontier.metadata["recommended"] == frontier.smallest_within(0.3).budget
    assert "is not clearly above 0.5" in result.stderr
    best = frontier.metadata["recommended"]
    assert f"Smallest size within 0.3 of the dense model's validation AUC: {best}" in result.stderr
    shown = " ".join(thresher("show", out).stdout.split())
    assert f"max auc drop 0.3 recommended {best} " in shown
    content = json.loads(thresher("show", out, "--json").stdout)
    assert (content["max_auc_drop"], content["recommended"]) == (0.3, best)
    for text in (shown, content["doubts"], json.loads(thresher("retrain", out, "--json").stdout)["doubts"]):
        assert "is not clearly above 0.5" in text


def test_resume_force_and_neither(finished, thresher, refused):
    out, words = finished.out, finished.words
    assert "hint: Use --resume to continue it, --force to replace it" in refused(*words)
    before = (out / "tickets" / "50" / "mask.safetensors").stat().st_mtime_ns
    assert thresher(*words, "--resume").exit_code == 0
    assert (out / "tickets" / "50" / "mask.safetensors").stat().st_mtime_ns == before  # nothing was done twice
    message = refused(*words, "--seed", "7", "--set", "training.patience=9", "--resume")
    assert "started with other settings (seed was 0, is 7; training.patience was " in message
    assert ", is 9). Resume it with the settings in" in message
    assert "hint: Use --out" in message
    (out / "results.json").unlink()
    assert thresher("prune", "--out", out, "--resume").exit_code == 0  # with its own settings
    assert (out / "results.json").exists()
    assert "seed was 0, is 7" in refused("prune", "--out", out, "--resume", "--seed", "7")
    assert "holds no run to resume" in refused("prune", "--out", out.parent / "nowhere", "--resume")
    assert "resume and force are mutually exclusive" in refused(*words, "--resume", "--force")
    assert (out / "results.json").exists()
    assert thresher(*words, "--seed", "7", "--force").exit_code == 0
    assert Run.open(out).config.seed == 7


def test_force_does_not_delete_the_table_it_reads(finished, refused, fast):
    out = finished.out
    message = refused("prune", out / "encoded", "--budgets", "50", "--out", out, "--force", *fast)
    assert f"the input {out / 'encoded'} is inside {out}, which would be replaced" in message
    assert (out / "results.json").exists()


def test_retrain_needs_a_finished_search(refused, tmp_path, finished):
    assert "holds no run" in refused("retrain", tmp_path / "absent")
    (finished.out / "tickets" / "tickets.json").unlink()
    assert "is not finished" in refused("retrain", finished.out)


def test_synthetic_by_name(thresher, fast, tmp_path):
    words = ["prune", "synthetic", "--set", "data.synthetic.num_rows=2000", "--budgets", "5%"]
    result = thresher(*words, "--out", tmp_path / "run", *fast)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("synthetic · fm · seed 0")


@pytest.fixture
def short_demo(monkeypatch):
    """The demo with few rows and epochs."""
    config = run_commands.demo_config()
    config = replace(
        config,
        data=DataConfig(source="synthetic", synthetic=SyntheticConfig(num_rows=2_000, field_size=20)),
        search=replace(config.search, warmup_epochs=1, plan_epochs=2),
        training=replace(config.training, max_epochs=1),
        budgets=("20%",),
        teacher_share=0.0,
    )
    monkeypatch.setattr(run_commands, "demo_config", lambda: config)
    return config


def test_demo_replaces_an_earlier_demo(thresher, short_demo, tmp_path):
    out = tmp_path / "demo"
    assert thresher("demo", "--out", out).exit_code == 0
    (out / "results.json").write_text("{}")
    again = thresher("demo", "--out", out)
    assert again.exit_code == 0, again.stderr
    assert "every field = 0" in again.stderr
    assert (out / "results.json").read_text() != "{}"


def test_demo_replaces_only_an_earlier_demo(refused, finished, short_demo, tmp_path):
    seed = Run.open(finished.out).config.seed
    assert "holds a run that is not the demo (budgets was" in refused("demo", "--out", finished.out)
    assert Run.open(finished.out).config.seed == seed
    assert (finished.out / "results.json").exists()
    project = tmp_path / "project"
    project.mkdir()
    for name, error in (
        ("notes.md", "is not empty and holds no run"),
        ("config.toml", "not hold the settings of a run"),
    ):
        (project / name).write_text("name = 'mine'\n")
        assert error in refused("demo", "--out", project)
    assert {path.name for path in project.iterdir()} == {"config.toml", "notes.md"}


@pytest.mark.parametrize("command", ["prune", "search", "compare"])
def test_a_small_number_as_a_budget_is_explained(thresher, tmp_path, command):
    words = [command, tmp_path / "absent.csv", "--label", "clicked", "--out", tmp_path / "out"]
    message = thresher(*words, "--budgets", "5,200,2%").stderr
    assert message.count("parameters; write") == 1
    assert "budget 5 is 5 parameters; write 5% for a share" in message
