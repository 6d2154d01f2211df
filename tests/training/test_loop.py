import itertools
import os
import signal

import pytest
import torch
from training_toys import toy_model, toy_sources

from thresher.data.batches.split_batches import SplitBatches
from thresher.errors import TimeLimitReached
from thresher.training.checkpoint import Checkpoint, read_history
from thresher.training.loop import run_epochs
from thresher.training.optimizers import OptimizerConfig, build_optimizer


class StepCounter:
    """A controller that ends after two epochs, counts steps, and shrinks a weight at each: its state must survive."""

    def __init__(self, model):
        self.model, self.steps, self.epochs = model, 0, 0
        self.sum = torch.zeros(())

    @property
    def finished(self):
        return self.epochs == 2

    def after_step(self):
        self.steps += 1
        with torch.no_grad():
            self.sum += self.model.out.weight.sum()
            self.model.out.weight.mul_(1 - 1e-3 * torch.sigmoid(self.sum))

    def after_epoch(self, epoch, metrics):
        self.epochs = epoch
        return {"steps": self.steps}

    def progress(self):
        return {"kept_parameters": 1000 - self.steps, "next_budget": "900"}

    def state(self):
        return Checkpoint({"sum": self.sum}, {"steps": self.steps, "epochs": self.epochs})

    def load(self, state):
        self.steps, self.epochs, self.sum = state.metadata["steps"], state.metadata["epochs"], state.tensors["sum"]


def run(folder, *, interrupt_at=None, progress=None, should_stop=None):
    model, (train, validation) = toy_model(), toy_sources()

    def on_batch(epoch, batch):
        if (epoch, batch) == interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)

    train.on_batch = on_batch
    controller = StepCounter(model)
    result = run_epochs(
        model,
        build_optimizer(model, OptimizerConfig()),
        controller,
        SplitBatches(train=train, validation=validation),
        folder=folder,
        stage="count",
        settings={"a_tuple": (1, 2), "a_path": folder},
        seed=0,
        max_epochs=2,
        progress=progress,
        should_stop=should_stop,
    )
    return model, controller, result


def test_a_controller_is_called_after_each_step_and_resumes_exactly(tmp_path):
    whole, halted = tmp_path / "whole", tmp_path / "halted"
    model, controller, result = run(whole)
    assert controller.steps == 40
    assert [record["steps"] for record in result[0]] == [20, 40]
    with pytest.raises(KeyboardInterrupt):
        run(halted, interrupt_at=(2, 5))
    assert [record["epoch"] for record in read_history(halted / "history.jsonl")] == [1]
    resumed, resumed_controller, _ = run(halted)
    assert resumed_controller.steps == 40
    assert torch.equal(resumed_controller.sum, controller.sum)
    for name, tensor in model.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


def test_should_stop_ends_a_training_after_a_step_and_it_resumes_exactly(tmp_path):
    model, _, _ = run(tmp_path / "whole")
    calls = iter(range(100))
    with pytest.raises(TimeLimitReached, match="epoch 2, step 5"):
        run(tmp_path / "stopped", should_stop=lambda: next(calls) == 25)  # after 20 steps, the end of the epoch, 5 more
    resumed, controller, _ = run(tmp_path / "stopped")
    assert controller.steps == 40
    assert all(torch.equal(resumed.state_dict()[name], tensor) for name, tensor in model.state_dict().items())


def test_a_finished_training_is_not_stopped(tmp_path):
    _, controller, _ = run(tmp_path)
    _, again, result = run(tmp_path, should_stop=lambda: True)
    assert (again.steps, len(result[0])) == (controller.steps, 2)


def test_seconds_add_up_over_epochs_and_leave_out_interruptions(tmp_path, monkeypatch):
    looks = itertools.count()
    monkeypatch.setattr("thresher.training.run_state.perf_counter", looks.__next__)  # a second passes at each look
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, interrupt_at=(2, 5))
    next(itertools.islice(looks, 1000, None))  # the time of the interruption
    _, _, result = run(tmp_path)
    seconds = [record["seconds"] for record in result[0]]
    assert min(seconds) > 0
    assert sum(seconds) <= result[1] < 1000


def test_ctrl_c_in_the_last_step_of_an_epoch_is_a_plain_interrupt_with_its_checkpoint(tmp_path):
    with pytest.raises(KeyboardInterrupt) as raised:
        run(tmp_path, interrupt_at=(1, 19))
    assert raised.type is KeyboardInterrupt
    _, controller, result = run(tmp_path)
    assert (controller.steps, len(result[0])) == (40, 2)


def test_progress_shows_the_fields_of_the_controller(tmp_path):
    states = []

    class Recorder:
        def update(self, state):
            states.append(state)

    run(tmp_path, progress=Recorder())
    assert (states[0].stage, states[0].kept_parameters, states[0].next_budget) == ("count", 1000, "900")
    assert (states[-1].kept_parameters, states[-1].finished) == (960, True)
