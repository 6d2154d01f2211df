import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from training_toys import TOY_CONFIG, fit_toy, toy_model, toy_sources

from thresher._internal.settings import config_from_mapping, config_to_mapping
from thresher.data.batches.split_batches import SplitBatches
from thresher.errors import ConfigError, FormatError, TimeLimitReached
from thresher.training.checkpoint import Checkpoint, capture_rng_state, read_history
from thresher.training.epoch import evaluate
from thresher.training.fit import EarlyStopping, TrainingConfig, fit
from thresher.training.metrics import Metrics


def same_weights(one, other):
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def without_seconds(records):
    return [{key: value for key, value in record.items() if "seconds" not in key} for record in records]


def assert_same_run(model, result, expected_model, expected):
    assert same_weights(model.state_dict(), expected_model.state_dict())
    assert without_seconds(result.history) == without_seconds(expected.history)
    assert replace(result, seconds=0.0, history=()) == replace(expected, seconds=0.0, history=())


@pytest.fixture(scope="module")
def uninterrupted():
    return fit_toy(None)


def test_the_best_weights_are_restored_and_learn_something(uninterrupted):
    model, result = uninterrupted
    _, validation = toy_sources()
    assert evaluate(model, validation).auc == result.validation.auc
    aucs = [record["validation"]["auc"] for record in result.history]
    assert result.validation.auc == max(aucs) == aucs[result.best_epoch - 1]
    assert result.validation.auc > 0.7
    assert result.best_epoch < result.num_epochs == len(aucs)  # so that the last weights are not the best
    assert result.validation.rare_auc is not None


def test_stops_when_patience_is_over():
    train, validation = toy_sources()
    config = replace(TOY_CONFIG, max_epochs=50, patience=1)
    result = fit(toy_model(), SplitBatches(train=train, validation=validation), config, seed=0)
    assert result.num_epochs == result.best_epoch + 1 < 50


def test_the_seed_decides_and_the_global_generators_are_left_alone(uninterrupted):
    torch.manual_seed(123)
    before = capture_rng_state()
    model, result = fit_toy(None)
    assert all(torch.equal(before[name], tensor) for name, tensor in capture_rng_state().items())
    assert_same_run(model, result, *uninterrupted)
    train, validation = toy_sources()
    other = toy_model()
    fit(other, SplitBatches(train=train, validation=validation), TOY_CONFIG, seed=4)
    assert not same_weights(other.state_dict(), model.state_dict())  # other dropout


def test_writing_files_changes_nothing_and_history_matches(tmp_path, uninterrupted):
    model, result = fit_toy(tmp_path)
    assert_same_run(model, result, *uninterrupted)
    assert read_history(tmp_path / "history.jsonl") == list(result.history)


def test_a_finished_run_is_reopened_at_once_with_the_same_result(tmp_path):
    model, result = fit_toy(tmp_path)
    train, _ = toy_sources()

    def never(epoch, batch):
        raise AssertionError("no batch should be read")

    train.on_batch = never
    again, same = fit_toy(tmp_path, train)
    assert same == result
    assert same_weights(again.state_dict(), model.state_dict())


@pytest.mark.parametrize(("epoch", "batch"), [(1, 0), (1, 7), (2, 13), (3, 19)])
def test_ctrl_c_in_the_middle_of_an_epoch_resumes_exactly(tmp_path, uninterrupted, epoch, batch):
    train, _ = toy_sources()

    def press(at_epoch, at_batch):
        if (at_epoch, at_batch) == (epoch, batch):
            os.kill(os.getpid(), signal.SIGINT)

    train.on_batch = press
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fit_toy(tmp_path, train)
    assert signal.getsignal(signal.SIGINT) is before
    facts = Checkpoint.load(tmp_path / "checkpoint.safetensors").metadata
    assert (facts["epoch"], facts["step"]) == (epoch, batch + 1)  # the step under way was completed
    assert_same_run(*fit_toy(tmp_path), *uninterrupted)
    assert [record["epoch"] for record in read_history(tmp_path / "history.jsonl")] == list(
        range(1, uninterrupted[1].num_epochs + 1)
    )


def test_ctrl_c_during_evaluation_resumes_exactly(tmp_path, uninterrupted):
    model, (train, validation) = toy_model(), toy_sources()

    def press(epoch, batch):
        if batch == 2:
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("the signal should not have waited for the evaluation's end")

    validation.on_batch = press
    with pytest.raises(KeyboardInterrupt):
        fit(model, SplitBatches(train=train, validation=validation), TOY_CONFIG, seed=3, folder=tmp_path)
    assert Checkpoint.load(tmp_path / "checkpoint.safetensors").metadata["step"] == len(train)
    assert_same_run(*fit_toy(tmp_path), *uninterrupted)


def test_an_error_in_the_middle_leaves_the_last_epochs_checkpoint(tmp_path, uninterrupted):
    train, _ = toy_sources()

    def fail(epoch, batch):
        if (epoch, batch) == (3, 4):
            raise RuntimeError("the disk is gone")

    train.on_batch = fail
    with pytest.raises(RuntimeError, match="the disk is gone"):
        fit_toy(tmp_path, train)
    with (tmp_path / "history.jsonl").open("a") as file:
        file.write('{"epoch": 3, "from": "a run that was ahead of its checkpoint"}\n{"epo')
    assert_same_run(*fit_toy(tmp_path), *uninterrupted)
    assert without_seconds(read_history(tmp_path / "history.jsonl")) == without_seconds(uninterrupted[1].history)


@pytest.mark.parametrize("slow_from", [10, 47])
def test_a_killed_process_resumes_bit_for_bit(tmp_path, uninterrupted, slow_from):
    toys = Path(__file__).with_name("training_toys.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, toys, tmp_path, str(slow_from)], env=environment)
    deadline = time.monotonic() + 60
    while not (tmp_path / "reached").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert (tmp_path / "checkpoint.safetensors").exists() == (slow_from >= 20)  # an epoch has 20 batches
    subprocess.run([sys.executable, toys, tmp_path, "1000000"], env=environment, check=True)
    assert same_weights(load_file(tmp_path / "final.safetensors"), uninterrupted[0].state_dict())
    assert without_seconds(read_history(tmp_path / "history.jsonl")) == without_seconds(uninterrupted[1].history)


def test_a_checkpoint_with_other_settings_or_of_another_stage_is_refused(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    fit_toy(tmp_path)
    train, validation = toy_sources()
    with pytest.raises(ConfigError, match=r"other settings \(patience 2 → 1; seed 3 → 9\)\. Use the same"):
        fit(
            toy_model(),
            SplitBatches(train=train, validation=validation),
            replace(TOY_CONFIG, patience=1),
            seed=9,
            folder=tmp_path,
        )
    with pytest.raises(ConfigError, match=r"with other initial weights.* delete the file to start again"):
        fit_toy(tmp_path, model=toy_model(seed=1))
    Checkpoint(metadata={"stage": "search"}).save(path)
    with pytest.raises(FormatError, match=r"another stage \(search, expected fit\)"):
        fit_toy(tmp_path)


def test_watched_splits_are_recorded_and_decide_nothing(uninterrupted):
    model, (train, validation) = toy_model(), toy_sources()
    result = fit(model, SplitBatches(train=train, validation=validation), TOY_CONFIG, seed=3, watch={"test": train})
    assert same_weights(model.state_dict(), uninterrupted[0].state_dict())
    last = result.history[-1]["watch"]["test"]
    assert last["num_rows"] == train.num_rows
    assert "watch" not in uninterrupted[1].history[-1]


def test_progress_shows_the_stage_and_its_end_also_when_resumed(tmp_path):
    states = []

    class Recorder:
        def update(self, state):
            states.append(state)

    def train():
        batches, validation = toy_sources()
        data = SplitBatches(train=batches, validation=validation)
        return fit(toy_model(), data, TOY_CONFIG, seed=3, folder=tmp_path, progress=Recorder(), stage="retrain 30k")

    result = train()
    assert {state.stage for state in states} == {"retrain 30k"}
    assert states[-1].finished
    assert not states[-2].finished
    assert (states[-1].metric, states[-1].best) == ("auc", result.validation.auc)
    assert (states[-1].epoch, states[-1].step) == (result.num_epochs, states[-1].num_steps)
    before = states[-1]
    train()
    assert (states[-1].epoch, states[-1].step) == (before.epoch, before.step)


def test_config_is_checked_and_survives_toml():
    with pytest.raises(ConfigError, match="max_epochs is -1"):
        TrainingConfig(max_epochs=-1)
    with pytest.raises(ConfigError, match="patience is 0"):
        TrainingConfig(patience=0)
    assert config_from_mapping(TrainingConfig, config_to_mapping(TOY_CONFIG)) == TOY_CONFIG
    assert asdict(TrainingConfig())["early_stopping_metric"] == "auc"


def metrics(auc=0.5, logloss=0.5):
    return Metrics(auc=auc, logloss=logloss, mean_prediction=0.5, mean_label=0.5, rare_auc=None, num_rows=1)


def test_stops_after_patience_epochs_without_improvement():
    stopping = EarlyStopping(metric="auc", patience=2)
    decisions = []
    for epoch, auc in enumerate([0.6, 0.7, 0.7, 0.71, 0.70, 0.71], 1):
        decisions.append((stopping.update(epoch, metrics(auc)), stopping.should_stop))
    improved = [True, True, False, True, False, False]
    assert decisions == list(zip(improved, [False] * 5 + [True], strict=True))
    assert (stopping.best_epoch, stopping.best) == (4, 0.71)


def test_logloss_improves_downwards_and_min_delta_is_needed():
    stopping = EarlyStopping(metric="logloss", patience=3, min_delta=0.1)
    assert stopping.update(1, metrics(logloss=1.0))
    assert not stopping.update(2, metrics(logloss=0.95))
    assert stopping.update(3, metrics(logloss=0.85))
    assert not stopping.update(4, metrics(logloss=2.0))
    assert stopping.best_epoch == 3


def test_best_weights_and_buffers_are_restored_into_the_same_parameters():
    model = nn.BatchNorm1d(2)
    stopping = EarlyStopping()
    parameter = model.weight
    for epoch, auc in enumerate([0.6, 0.8, 0.7], 1):
        with torch.no_grad():
            model.weight.fill_(epoch)
            model.running_mean.fill_(epoch)
        stopping.update(epoch, metrics(auc), model)
    stopping.restore_best_(model)
    assert model.weight is parameter
    assert model.weight.tolist() == model.running_mean.tolist() == [2.0, 2.0]


def test_resumes_from_its_stored_state():
    model = nn.Linear(1, 1)
    first = EarlyStopping(patience=2)
    first.update(1, metrics(0.7), model)
    first.update(2, metrics(0.6), model)
    second = EarlyStopping(patience=2)
    second.load(first.state())
    assert not second.should_stop
    second.update(3, metrics(0.6), model)
    assert second.should_stop
    assert second.best_metrics == metrics(0.7)
    expected = model.weight.item()
    nn.init.zeros_(model.weight)
    second.restore_best_(model)
    assert model.weight.item() == expected


def test_invalid_settings_are_refused():
    with pytest.raises(ConfigError, match="known metrics are auc, logloss"):
        EarlyStopping(metric="accuracy")
    with pytest.raises(ConfigError, match="patience is 0"):
        EarlyStopping(patience=0)
    with pytest.raises(ConfigError, match="no weights were kept"):
        EarlyStopping().restore_best_(nn.Linear(1, 1))


def test_a_part_of_an_epoch_trains_on_the_first_batches_and_resumes_bit_for_bit(tmp_path):
    train, validation = toy_sources()
    data, config = SplitBatches(train=train, validation=validation), replace(TOY_CONFIG, max_epochs=0.5)
    model = toy_model()
    result = fit(model, data, config, seed=0)
    assert (result.num_epochs, result.best_epoch, len(result.history)) == (0.5, 1, 1)
    assert len(train) > 3

    class Half:
        num_rows = train.num_rows

        def __len__(self):
            return round(len(train) / 2)

        def epoch(self, epoch, start=0):
            return islice(train.epoch(epoch, start), len(self) - start)

    by_hand = toy_model()
    fit(by_hand, replace(data, train=Half()), replace(config, max_epochs=1), seed=0)
    assert same_weights(model.state_dict(), by_hand.state_dict())

    stops = iter([False, True])
    resumed = toy_model()
    with pytest.raises(TimeLimitReached):
        fit(resumed, data, config, seed=0, folder=tmp_path, should_stop=lambda: next(stops))
    again = toy_model()
    assert_same_run(again, fit(again, data, config, seed=0, folder=tmp_path), model, result)


@pytest.mark.parametrize("max_epochs", [-1, 1.5, float("inf"), float("nan")])
def test_epochs_are_whole_or_a_part_of_one(max_epochs):
    with pytest.raises(ConfigError, match="whole number, or a part of an epoch"):
        TrainingConfig(max_epochs=max_epochs)
