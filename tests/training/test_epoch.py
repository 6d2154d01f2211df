import os
import signal
import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from training_toys import NUM_FEATURES, ToyBatch, ToySource, toy_model, toy_rows, toy_sources

from thresher._internal.interrupts import SafeInterrupt, deferred_interrupts
from thresher.errors import ThresherError
from thresher.training.epoch import (
    STEPS_BETWEEN_CHECKS,
    RunningLoss,
    evaluate,
    train_epoch,
)
from thresher.training.metrics import auc, logloss, rare_rows
from thresher.training.optimizers import OptimizerConfig, build_optimizer
from thresher.training.progress import StageProgress


def sgd(model, lr=0.0):
    return torch.optim.SGD(model.parameters(), lr=lr)


def test_mean_loss_is_per_row_whatever_the_batches():
    ids, labels = toy_rows(70, 0)
    model = toy_model(dropout=0.0)
    model.norm = nn.Identity()
    expected = binary_cross_entropy_with_logits(model(ids), labels).item()
    for batch_size in (70, 32, 1):  # 32 leaves a last batch of 6
        source = ToySource(ids, labels, batch_size=batch_size)
        assert train_epoch(model, source, sgd(model), 1) == pytest.approx(expected, rel=1e-6)


def test_sample_weights_count_as_repeated_rows_and_their_scale_does_not_matter():
    ids, labels = toy_rows(40, 0)
    times = torch.arange(40) % 3

    def trained(source):
        model = toy_model(dropout=0.0)
        model.norm = nn.Identity()
        loss = train_epoch(model, source, sgd(model, lr=0.5), 1)
        return loss, model.table.weight.detach()

    repeated = ToySource(ids.repeat_interleave(times, 0), labels.repeat_interleave(times), batch_size=100)
    loss, table = trained(repeated)
    for weights in (times.float(), 7.0 * times):
        weighted_loss, weighted_table = trained(ToySource(ids, labels, batch_size=100, weights=weights))
        assert weighted_loss == pytest.approx(loss, rel=1e-5)
        torch.testing.assert_close(weighted_table, table)


def test_a_row_left_alone_in_the_last_batch_is_trained_on_under_batch_norm():
    ids, labels = toy_rows(33, 0)
    model = toy_model(dropout=0.0)
    assert isinstance(model.norm, nn.BatchNorm1d)
    before, steps = model.table.weight.detach().clone(), []
    train_epoch(
        model, ToySource(ids, labels, batch_size=32), sgd(model, lr=1.0), 1, on_step=lambda step, _: steps.append(step)
    )
    assert steps == [0, 1]
    assert model.norm.training
    assert model.norm.num_batches_tracked == 1  # one row says nothing of the spread
    assert not torch.equal(model.table.weight[ids[-1]], before[ids[-1]])


def test_a_batch_of_weight_zero_changes_nothing():
    ids, labels = toy_rows(4, 0)
    model = toy_model(dropout=0.0)
    before = model.table.weight.clone()
    with pytest.raises(ThresherError, match="no row with a sample weight above 0"):
        train_epoch(model, ToySource(ids, labels, weights=torch.zeros(4)), sgd(model, lr=1.0), 1)
    assert torch.equal(model.table.weight, before)


def test_on_step_sees_every_step_after_it_is_taken():
    train, _ = toy_sources()
    model = toy_model()
    seen, tables = [], [model.table.weight.detach().clone()]

    def on_step(step, loss):
        assert not loss.requires_grad
        assert not torch.equal(model.table.weight, tables[-1])
        tables.append(model.table.weight.detach().clone())
        seen.append(step)

    train_epoch(model, train, sgd(model, lr=0.1), 1, start=5, on_step=on_step)
    assert seen == list(range(5, len(train)))


def test_a_loss_that_is_not_finite_is_an_error_with_its_step():
    rows = 4 * (STEPS_BETWEEN_CHECKS + 20)
    source = ToySource(*toy_rows(rows, 0), batch_size=4)
    model = toy_model()

    def spoil(epoch, batch):
        if batch == STEPS_BETWEEN_CHECKS + 6:
            with torch.no_grad():
                model.out.bias.fill_(float("nan"))

    source.on_batch = spoil
    with pytest.raises(ThresherError, match=f"became nan in epoch 4, step {STEPS_BETWEEN_CHECKS + 7}. Lower the"):
        train_epoch(model, source, sgd(model), 4)


def test_running_loss_does_not_depend_on_when_it_is_read():
    losses = torch.rand(300, generator=torch.Generator().manual_seed(0)).split(1)
    whole, halted = RunningLoss(), RunningLoss()
    for step, loss in enumerate(losses):
        whole.add(1, step, loss[0], 32.0)
        halted.add(1, step, loss[0], torch.tensor(32.0))
        if step in (3, 150, 151):
            halted = RunningLoss(**halted.state(1))
    assert whole.read(1) == halted.read(1)


def test_no_rows_are_an_error():
    empty = ToySource(*toy_rows(0, 0))
    model = toy_model()
    with pytest.raises(ThresherError, match="the training split has no row"):
        train_epoch(model, empty, sgd(model), 1)
    with pytest.raises(ThresherError, match="the split to evaluate on has no row"):
        evaluate(model, empty)


def test_evaluation_is_over_the_whole_split_without_dropout_and_leaves_no_trace():
    _, validation = toy_sources()
    model = toy_model()
    model.train()
    model.norm.eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    counts = np.arange(NUM_FEATURES)[::-1]
    metrics = evaluate(model, validation, feature_counts=counts)
    assert (model.training, model.norm.training, model.dropout.training) == (True, False, True)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())

    model.eval()
    logits, labels = model(validation.ids).detach().numpy(), validation.labels.numpy()
    assert metrics.auc == pytest.approx(auc(labels, logits), abs=1e-9)
    assert metrics.logloss == pytest.approx(logloss(labels, logits), rel=1e-6)
    rare = rare_rows(counts[validation.ids.numpy()].min(axis=1))
    assert metrics.rare_auc == pytest.approx(auc(labels[rare], logits[rare]), abs=1e-9)
    assert metrics.num_rows == 200


def test_evaluation_respects_sample_weights():
    ids, labels = toy_rows(100, 0)
    times = torch.arange(100) % 3
    model = toy_model()
    weighted = evaluate(model, ToySource(ids, labels, weights=times.float()))
    repeated = evaluate(model, ToySource(ids.repeat_interleave(times, 0), labels.repeat_interleave(times)))
    assert weighted.auc == pytest.approx(repeated.auc)
    assert weighted.logloss == pytest.approx(repeated.logloss, rel=1e-6)
    assert weighted.mean_prediction == pytest.approx(repeated.mean_prediction, rel=1e-6)


def test_logits_with_a_column_are_fine_but_not_two_per_row():
    _, validation = toy_sources()

    class Wide(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.table = nn.Embedding(NUM_FEATURES, width)

        def forward(self, ids):
            return self.table(ids).sum(1)  # [B, width]

    assert 0.0 <= evaluate(Wide(1), validation).auc <= 1.0
    model = Wide(2)
    with pytest.raises(ThresherError, match=r"logits of shape \[64, 2\] for labels of shape \[64\]"):
        evaluate(model, validation)
    with pytest.raises(ThresherError, match="one logit per row"):
        train_epoch(model, validation, sgd(model), 1)


def test_counts_without_ids_are_an_error():
    class Dense(ToySource):
        def epoch(self, epoch, start=0):
            yield ToyBatch((torch.zeros(2, 3),), torch.tensor([0.0, 1.0]))

    with pytest.raises(ThresherError, match="not an integer tensor"):
        evaluate(nn.Linear(3, 1), Dense(*toy_rows(2, 0)), feature_counts=[1, 2, 3])


def test_progress_hears_of_the_epoch():
    states = []

    class Recorder:
        def update(self, state):
            states.append(state)

    train, _ = toy_sources()
    model = toy_model()
    show = StageProgress(Recorder(), stage="search", max_epochs=9, num_steps=len(train))
    show.note(kept_parameters=500, next_budget="400")
    loss = train_epoch(model, train, build_optimizer(model, OptimizerConfig()), 2, progress=show)
    first, last = states[0], states[-1]
    assert (first.stage, first.epoch, first.step, first.kept_parameters) == ("search", 2, 1, 500)
    assert (last.step, last.num_steps, last.loss, last.next_budget) == (len(train), len(train), loss, "400")
    assert len(states) < len(train)  # not at every step


def press():
    os.kill(os.getpid(), signal.SIGINT)


def run(*actions, immediate=False):
    """Do things while Ctrl-C is held back; returns those that were done and what was raised."""
    done = []
    try:
        with deferred_interrupts() as interrupts:
            for action in actions:
                with interrupts.immediate() if immediate else nullcontext():
                    {"press": press, "ask": interrupts.raise_if_pending, "step": lambda: None}[action]()
                done.append(action)
    except KeyboardInterrupt as raised:
        return done, type(raised)
    finally:
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return done, None


def test_waits_until_asked():
    assert run("ask", "press", "step", "ask", "step") == (["ask", "press", "step"], SafeInterrupt)


def test_a_second_interrupt_does_not_wait():
    assert run("press", "step", "press", "step") == (["press", "step"], KeyboardInterrupt)


def test_a_pending_interrupt_is_raised_at_the_end():
    assert run("step", "press", "step") == (["step", "press", "step"], KeyboardInterrupt)


def test_immediate_parts_need_not_wait():
    assert run("step", "press", "step", immediate=True) == (["step"], SafeInterrupt)


def test_other_threads_and_ignored_signals_are_left_alone():
    handlers = []

    def elsewhere():
        with deferred_interrupts():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with deferred_interrupts():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
