"""Effort presets: the search starts from the dense model, tickets continue from it, and the cost is reported."""

from dataclasses import replace

import pytest
import torch

from thresher.data.config import DataConfig, SyntheticConfig
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError, ThresherError
from thresher.experiment.config import RunConfig
from thresher.experiment.dense_start import DenseStart
from thresher.experiment.effort import LONG_EPOCH, PRESETS, RetrainingConfig, StageSettings
from thresher.experiment.prune import prune
from thresher.experiment.run.run_models import ConfiguredModels
from thresher.search.schedule import SearchConfig
from thresher.search.ticket_files import load_ticket
from thresher.training.checkpoint import read_history
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

STEPS = 500  # of an epoch
CONFIG = RunConfig(
    data=DataConfig(
        source="synthetic",
        synthetic=SyntheticConfig(num_rows=8_000, num_signal_fields=3, num_noise_fields=3, field_size=40, seed=2),
    ),
    embedding=PepConfig(embedding_dim=8),
    search=SearchConfig(clock_steps=5),
    training=TrainingConfig(max_epochs=10, batch_size=256, optimizer=OptimizerConfig(learning_rate=1e-2)),
    budgets=("20%", "5%"),
)


@pytest.fixture(scope="module")
def standard(tmp_path_factory):
    return prune(CONFIG, out=tmp_path_factory.mktemp("standard") / "run")


def test_the_search_starts_from_the_trained_dense_model(standard):
    dense = DenseStart.load(standard.run.dense_weights)
    ticket = load_ticket(standard.run.tickets / "5pct")
    (name,) = ticket.masks
    assert torch.equal(ticket.initial.values[name], dense.state[f"{name}.weight"][ticket.masks[name]])
    first, *_ = read_history(standard.run.tickets / "history.jsonl")
    assert not first["warming_up"]
    best = max(record["validation"]["auc"] for record in read_history(standard.run.dense / "history.jsonl"))
    assert first["validation"]["auc"] > best - 0.05  # initial weights have 0.5


def test_tickets_continue_from_the_values_of_the_search(standard):
    run = standard.run
    plan = str(run.distillation())
    (first, *_) = read_history(run.retrained("5%") / plan / "history.jsonl")
    at_start = read_history(run.tickets / "history.jsonl")[-1]["validation"]["auc"]
    assert first["validation"]["auc"] > at_start - 0.01
    longest = PRESETS["standard"].retraining_share * DenseStart.load(run.dense_weights).num_epochs
    for budget in CONFIG.budgets:
        assert len(read_history(run.retrained(budget) / plan / "history.jsonl")) <= max(2, round(longest))


def test_a_smaller_budget_does_not_change_larger_ones(standard, tmp_path):
    more = prune(replace(CONFIG, budgets=("20%", "5%", "0.5%")), out=tmp_path / "more")
    assert more.frontier.points[:2] == standard.frontier.points
    assert more.frontier.metadata["distillation"] == standard.frontier.metadata["distillation"]


def test_the_cost_of_every_stage_is_in_the_results(standard):
    cost = standard.frontier.to_json()["cost"]
    stages = {stage["stage"]: stage for stage in cost["stages"]}
    expected = ["no embedding", "dense", "trial of soft labels", "search", "retrain 20%", "retrain 5%"]
    assert list(stages) == expected
    assert all(stage["cpu_seconds"] > 0 for stage in stages.values())
    assert cost["total_seconds"] == pytest.approx(sum(stage["seconds"] for stage in stages.values()))
    assert cost["dense_seconds"] == stages["dense"]["seconds"]
    assert cost["total_over_dense"] == pytest.approx(cost["total_seconds"] / cost["dense_seconds"])
    assert stages["dense"]["over_dense"] == 1.0
    assert stages["dense"]["epochs"] == DenseStart.load(standard.run.dense_weights).num_epochs
    assert stages["trial of soft labels"]["epochs"] <= 4
    assert not list(standard.run.folder.rglob("checkpoint.safetensors"))


def test_given_settings_are_used_and_absent_ones_follow_the_preset():
    training = TrainingConfig(max_epochs=30, patience=5, optimizer=OptimizerConfig(learning_rate=0.001))
    open_settings = StageSettings(effort="standard", search=SearchConfig(), training=training)
    preset = PRESETS["standard"]
    assert open_settings.search_config(20, soft_labels=True).halving_epochs == pytest.approx(20 * preset.halving_share)
    assert open_settings.search_config(20, soft_labels=False).learning_rate_factor == preset.hard_rate
    tuned = open_settings.retraining_config(20, STEPS, soft_labels=True)
    assert tuned.optimizer.learning_rate == pytest.approx(0.001 * preset.soft_rate)
    assert (tuned.max_epochs, tuned.patience) == (round(20 * preset.retraining_share), preset.patience)

    given = StageSettings(
        effort="standard",
        search=SearchConfig(plan_epochs=3, learning_rate_factor=7.0),
        training=training,
        retraining=RetrainingConfig(learning_rate_factor=0.5, patience=4, max_epochs=9),
    )
    search = given.search_config(20, soft_labels=True)
    assert (search.plan_epochs, search.halving_epochs, search.learning_rate_factor) == (3, None, 7.0)
    tuned = given.retraining_config(20, STEPS, soft_labels=True)
    assert (tuned.optimizer.learning_rate, tuned.patience, tuned.max_epochs) == (0.0005, 4, 9)


@pytest.mark.parametrize("post_training", [False, True])
def test_rewound_tickets_are_trained_in_full_and_at_a_higher_rate_on_soft_labels(post_training):
    training = TrainingConfig(max_epochs=30, patience=5, optimizer=OptimizerConfig(learning_rate=0.0005))
    own = {"effort": "best", "search": SearchConfig(), "training": training, "post_training": post_training}
    settings = StageSettings(**own, rewind="initial" if post_training else None)
    assert (settings.start, settings.resolved_rewind) == ("dense", "initial")
    assert settings.retraining_config(20, STEPS, soft_labels=False) == training
    faster = replace(training, optimizer=replace(training.optimizer, learning_rate=0.0015))
    assert settings.retraining_config(20, STEPS, soft_labels=True) == faster


@pytest.mark.parametrize(("given", "raised"), [(0.0001, 0.0003), (0.002, 0.003), (0.003, 0.003), (0.01, 0.01)])
def test_rates_are_raised_to_a_highest_one_and_higher_ones_are_kept(given, raised):
    optimizer = OptimizerConfig(learning_rate=given)
    settings = StageSettings(
        effort="standard", search=SearchConfig(optimizer=optimizer), training=TrainingConfig(optimizer=optimizer)
    )
    search = settings.search_config(20, soft_labels=True)
    assert search.learning_rate_factor is not None
    assert given * search.learning_rate_factor == pytest.approx(raised)
    assert settings.retraining_config(20, STEPS, soft_labels=True).optimizer.learning_rate == pytest.approx(raised)


def test_an_effort_decides_how_long_labels_are_tried():
    settings = {
        effort: StageSettings(effort=effort, search=SearchConfig(), training=TrainingConfig()) for effort in PRESETS
    }
    assert {effort: own.trial_epochs(20, STEPS) for effort, own in settings.items()} == {
        "fast": 1, "standard": 2, "best": 2, "paper": 2,
    }  # fmt: skip
    long = {effort: own.trial_epochs(1, 10 * LONG_EPOCH) for effort, own in settings.items()}
    assert long == {"fast": 0.1, "standard": 0.1, "best": 0.1, "paper": 2}


def test_short_trainings_end_inside_a_long_epoch():
    fast = StageSettings(effort="fast", search=SearchConfig(), training=TrainingConfig())
    lengths = {steps: fast.retraining_config(1, steps, soft_labels=True).max_epochs for steps in (500, 5000, 50_000)}
    assert lengths == {500: 1, 5000: LONG_EPOCH / 5000, 50_000: PRESETS["fast"].retraining_share}
    assert fast.retraining_config(50, 50_000, soft_labels=True).max_epochs == 3


def test_retraining_on_few_rows_is_more_than_a_few_steps():
    fast = StageSettings(effort="fast", search=SearchConfig(), training=TrainingConfig())
    lengths = {steps: fast.retraining_config(10, steps, soft_labels=True).max_epochs for steps in (16, 125, 600)}
    assert lengths == {16: 5, 125: 4, 600: 1}


def test_the_published_way_and_methods_without_a_dense_start():
    training = TrainingConfig()
    paper = StageSettings(effort="paper", search=SearchConfig(), training=training)
    other = StageSettings(effort="standard", search=SearchConfig(), training=training, can_start_dense=False)
    for settings in (paper, other):
        assert (settings.start, settings.resolved_rewind) == ("initial", "initial")
        assert settings.search_config(20, soft_labels=True) == SearchConfig(start="initial")
        assert settings.retraining_config(20, STEPS, soft_labels=True) == training
    assert RunConfig(embedding=PepConfig(pressure="decay")).stage_settings().start == "initial"


def test_paper_gives_the_numbers_of_the_published_way_spelled_out(tmp_path):
    common = replace(CONFIG, training=replace(CONFIG.training, max_epochs=2), teacher_share=0.0, budgets=("20%", "5%"))
    short = replace(CONFIG.search, warmup_epochs=1.0)
    paper = prune(replace(common, effort="paper", search=short), out=tmp_path / "paper")
    spelled = replace(short, start="initial", plan_epochs=20.0)
    published = prune(replace(common, search=spelled, rewind="initial"), out=tmp_path / "published")
    assert paper.frontier.points == published.frontier.points
    assert paper.frontier.dense == published.frontier.dense
    continued = prune(replace(common, search=replace(spelled, start="dense")), out=tmp_path / "continued")
    assert continued.frontier.points != paper.frontier.points


def test_rewinding_after_a_search_from_the_dense_model_uses_the_initial_weights(tmp_path):
    config = replace(CONFIG, rewind="initial", budgets=("20%",), training=replace(CONFIG.training, max_epochs=1))
    result = prune(config, out=tmp_path / "run")
    settings = result.run.config.stage_settings()
    assert settings.retraining_config(1, STEPS, soft_labels=False) == config.training
    first = read_history(result.run.retrained("20%") / str(result.run.distillation()) / "history.jsonl")
    searched = read_history(result.run.tickets / "history.jsonl")
    assert first[0]["train_loss"] > searched[-1]["train_loss"]


def test_weights_of_another_model_are_refused(standard):
    start = DenseStart.load(standard.run.dense_weights)
    config = replace(CONFIG, embedding=PepConfig(embedding_dim=8), model=CONFIG.model)
    from thresher.data.table import EncodedTable

    model = ConfiguredModels(config, EncodedTable.open(standard.run.encoded)).searched()
    with pytest.raises(ThresherError, match=r"do not fit the searched model: other.weight"):
        DenseStart({**start.state, "other.weight": torch.zeros(1)}, 3).load_into_(model, None)


@pytest.mark.parametrize("settings", [{"learning_rate_factor": 0.0}, {"patience": 0}, {"max_epochs": -1}])
def test_bad_settings_of_retraining_are_refused(settings):
    with pytest.raises(ConfigError, match=r"retraining\.\w+ is"):
        RetrainingConfig(**settings)


def test_no_retraining_keeps_the_values_of_the_search(tmp_path):
    config = replace(CONFIG, budgets=("20%",), retraining=RetrainingConfig(max_epochs=0), teacher_share=0.0)
    result = prune(config, out=tmp_path / "run")
    stages = result.frontier.metadata["cost"]["stages"]
    assert [stage["stage"] for stage in stages] == ["no embedding", "dense", "search"]
    (point,) = result.frontier.points
    assert point.validation_auc > 0.6


def test_a_dense_training_without_epochs_is_refused():
    with pytest.raises(ConfigError, match=r"training\.max_epochs is 0: the dense model would stay untrained"):
        replace(CONFIG, training=replace(CONFIG.training, max_epochs=0))
