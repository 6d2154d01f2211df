"""Tables in memory that two processes share: the results of tables that each holds itself, bit for bit."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest
import torch

from processes import run_in_processes
from thresher._internal.host_memory import HostMemory, _mapped
from thresher._internal.processes import Processes, training_together
from thresher.data.batches.batches import TensorBatches
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.pep import PepConfig
from thresher.errors import NonFiniteError, ProcessLostError
from thresher.kernels.score_histogram import ScoreHistogram
from thresher.models.fm import FmConfig
from thresher.models.model_registry import build_model
from thresher.search.searcher import Searcher
from thresher.training.averaging import WeightAverage
from thresher.training.checkpoint import Checkpoint
from thresher.training.epoch import evaluate, train_epoch
from thresher.training.fit import TrainingConfig, fit
from thresher.training.optimizers import OptimizerConfig, build_optimizer
from thresher.training.row_adam import RowAdam
from thresher.training.shared_tables import SharedTables, exchanged_gradients

SIZES, STEPS, BATCH = [40, 30, 50], 12, 64


def new_training(granularity="feature-dimension"):
    draw = torch.Generator().manual_seed(0)
    offsets = torch.tensor(SIZES).cumsum(0) - torch.tensor(SIZES)
    ids = (torch.rand(STEPS * BATCH, 3, generator=draw) ** 3 * torch.tensor(SIZES)).long() + offsets
    batches = TensorBatches((ids.int(),), (ids.sum(1) % 3 == 0).float(), BATCH)
    torch.manual_seed(0)
    model = build_model(build_embedding(SIZES, PepConfig(embedding_dim=4, granularity=granularity)), FmConfig())
    return model, build_optimizer(model, OptimizerConfig(updates="rows", learning_rate=0.02)), batches


def counted_from_scratch(table):
    fresh = ScoreHistogram(table.weight, table.deviation, table.seen)
    return fresh.counts()


def search(share, granularity="feature-dimension", reads_table_at=None):
    """What a search of three epochs ends with, and whether tables were still shared before its end."""
    model, optimizer, batches = new_training(granularity)
    table = model.embedding
    searcher = Searcher(model, ["40%", "10%"], steps=3 * STEPS, warmup_steps=STEPS, every=2)
    average, aucs = WeightAverage(model, 0.9), []
    checks_histogram = granularity == "feature-dimension" and reads_table_at is None

    def on_step(step, loss):
        searcher.step()
        average.after_step()
        if checks_histogram and not searcher.warming_up:
            searcher.synchronize()
            assert torch.equal(table.score_histogram().counts(), counted_from_scratch(table))

    if reads_table_at is not None:
        add_reads(model, reads_table_at)
    processes = Processes.of()
    with (
        training_together(processes),
        exchanged_gradients(model, optimizer, processes, share_tables=share) as exchange,
    ):
        assert isinstance(exchange, SharedTables) == share
        for epoch in range(3):
            train_epoch(model, batches, optimizer, epoch, on_step=on_step, exchange=exchange)
            with average.in_place():
                aucs.append(evaluate(model, batches).auc)
            exchange.complete_states()
        searcher.synchronize()
        still_shared = getattr(optimizer, "shared", None) is not None
    assert optimizer.shared is None
    states = [
        value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)
    ]
    masks = [mask for ticket in searcher.tickets for mask in ticket.masks.values()]
    return still_shared, [*model.state_dict().values(), *states, *masks, torch.tensor(aucs)]


def add_reads(model, step):
    """From this step on, the loss also reads the whole table, which makes its gradient dense."""
    forward, steps = model.forward, iter(range(10**6))

    def forward_and_read(*inputs):
        logits = forward(*inputs)
        return logits + 1e-3 * model.embedding.weight.sum() if model.training and next(steps) >= step else logits

    model.forward = forward_and_read


def search_both_ways(rank):
    found = []
    for case in ({}, {"granularity": "feature"}, {"granularity": "dimension"}, {"reads_table_at": 5}):
        was_shared, shared = search(True, **case)
        _, alone = search(False, **case)
        assert was_shared == ("reads_table_at" not in case)
        assert len(shared) == len(alone)
        assert all(torch.equal(value, other) for value, other in zip(shared, alone, strict=True)), case
        if was_shared:
            found.append(shared)
    return found


def test_a_search_on_shared_tables_equals_one_on_copies():
    """Weights, optimizer states, tickets, histograms; also if the model begins to read the table as a whole."""
    first, second = run_in_processes(search_both_ways)
    for values, others in zip(first, second, strict=True):
        assert all(torch.equal(value, other) for value, other in zip(values, others, strict=True))


def num_open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def make_memory(rank):
    processes, num_files = Processes.of(), num_open_files()
    memory = HostMemory.of(processes, 1000)
    assert memory is not None
    memory.close()
    del memory
    gethostname, socket.gethostname = socket.gethostname, lambda: f"machine-{rank}"
    assert HostMemory.of(processes, 1000) is None
    socket.gethostname = gethostname
    delattr(os, "pidfd_open" if rank else "memfd_create")  # as in a Python that was built on an old system
    assert HostMemory.of(processes, 1000) is None
    assert num_open_files() == num_files


def test_no_memory_is_shared_by_several_machines_or_where_the_system_has_none():
    run_in_processes(make_memory)


def test_the_memory_of_another_process_with_the_same_number_is_refused(tmp_path):
    """In another container, a process may have the number of the first one, and any other file open."""
    (tmp_path / "file").write_bytes(b"text")
    for num_bytes in (4, 4096):
        with pytest.raises(OSError, match="another machine"):
            _mapped(str(tmp_path / "file"), num_bytes, b"0123")


def train_until_the_second_fails(rank):
    model, optimizer, batches = new_training()

    def on_step(step, loss):
        if rank and step == 2:
            raise NonFiniteError("only in this process")

    processes = Processes.of()
    with training_together(processes), exchanged_gradients(model, optimizer, processes, share_tables=True) as exchange:
        train_epoch(model, batches, optimizer, 1, on_step=on_step, exchange=exchange)


def fail(rank):
    with pytest.raises(NonFiniteError if rank else ProcessLostError):
        train_until_the_second_fails(rank)


def test_a_process_that_fails_ends_the_others():
    """They do not wait for it, although it is still alive."""
    start = time.monotonic()
    run_in_processes(fail)
    assert time.monotonic() - start < 100


def interrupt_the_first(rank, folder):
    """Ctrl-C reaches one process after all of them agreed to go on."""
    model, _, batches = new_training()
    step, steps = RowAdam.step, iter(range(1, 100))

    def step_and_interrupt(optimizer):
        step(optimizer)
        if next(steps) == 5 and rank == 0:
            os.kill(os.getpid(), signal.SIGINT)

    RowAdam.step = step_and_interrupt
    config = TrainingConfig(max_epochs=2, optimizer=OptimizerConfig(updates="rows"))
    with training_together(Processes.of()), pytest.raises(KeyboardInterrupt):
        fit(model, SplitBatches(train=batches, validation=batches), config, seed=0, folder=folder)
    return next(steps) - 1


def test_an_interrupt_stops_all_processes_after_the_same_step(tmp_path):
    assert run_in_processes(interrupt_the_first, tmp_path) == [6, 6]
    assert Checkpoint.load(tmp_path / "checkpoint.safetensors").metadata["step"] == 6
