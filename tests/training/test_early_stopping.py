import pytest
import torch
from torch import nn

from thresher.errors import ConfigError
from thresher.training.fit import EarlyStopping
from thresher.training.metrics import Metrics


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
    second.load(first.state(), first.tensors())
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
