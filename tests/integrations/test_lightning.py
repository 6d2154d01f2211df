"""The callback under a real Lightning trainer: alone, resumed from Lightning's checkpoint, in two processes."""

import os
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from processes import run_in_processes

lightning = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed (extra: lightning)")

from thresher.compact.embedding import CompactEmbedding  # noqa: E402
from thresher.integrations.lightning import PepCallback  # noqa: E402


class Clicks(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.users, self.items = nn.Embedding(30, 8), nn.Embedding(20, 8)

    def training_step(self, batch, batch_idx):
        users, items, labels = batch
        logits = (self.users(users) * self.items(items)).sum(1)
        return nn.functional.binary_cross_entropy_with_logits(logits, labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def loader(rank=0, size=1):
    """Batches of 32 rows, or the part of each that belongs to a process."""
    draw = torch.Generator().manual_seed(0)
    users, items = torch.randint(30, (320,), generator=draw), torch.randint(20, (320,), generator=draw)
    labels = (users % 2 == items % 2).to(torch.get_default_dtype())
    rows = TensorDataset(*(column[rank::size] for column in (users, items, labels)))
    return DataLoader(rows, batch_size=32 // size)


def fit(module, callbacks, folder, *, epochs, checkpoint=None, show_warnings=False, rows=None, **settings):
    with warnings.catch_warnings():
        # Lightning's advice on workers, devices and loggers
        warnings.simplefilter("always" if show_warnings else "ignore")
        trainer = lightning.Trainer(
            max_epochs=epochs,
            callbacks=callbacks,
            default_root_dir=folder,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            **settings,
        )
        trainer.fit(module, loader() if rows is None else rows, ckpt_path=checkpoint)
    return trainer


def test_tickets_come_out_of_a_lightning_training_and_go_into_the_next(tmp_path):
    module, search = Clicks(), PepCallback(["25%", "10%"], warmup_steps=8)
    fit(module, [search], tmp_path, epochs=3)
    assert [table.name for table in search.tables] == ["users", "items"]
    assert [ticket.num_parameters for ticket in search.tickets] == [100, 40]
    search.tickets[1].apply_(module)
    fit(module, [], tmp_path, epochs=1)
    assert isinstance(module.users, CompactEmbedding)
    assert module.users.num_parameters() + module.items.num_parameters() == 40


def test_thresholds_are_among_the_parameters_the_module_optimizes(tmp_path):
    module, search = Clicks(), PepCallback(["10%"])
    trainer = fit(module, [search], tmp_path, epochs=1)
    optimized = {id(p) for group in trainer.optimizers[0].param_groups for p in group["params"]}
    assert id(module.users.deviation) in optimized


def test_accumulated_gradients_count_as_one_step(tmp_path):
    search = PepCallback(["10%"], stop_when_finished=False)
    fit(Clicks(), [search], tmp_path, epochs=2, accumulate_grad_batches=5)
    assert search.searcher.current_step == 4


def test_stops_when_every_budget_has_its_ticket(tmp_path):
    search = PepCallback(["10%"], steps=12)
    trainer = fit(Clicks(), [search], tmp_path, epochs=5)
    assert search.searcher.finished
    assert trainer.current_epoch < 5


def test_a_training_that_stops_early_names_the_missing_budgets(tmp_path):
    class StopsEarly(lightning.Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            trainer.should_stop = True

    search = PepCallback(["25%", "10%"], steps=50)
    with warnings.catch_warnings(record=True) as caught:
        fit(Clicks(), [search, StopsEarly()], tmp_path, epochs=5, show_warnings=True)
    [message] = [str(warning.message) for warning in caught if "no ticket" in str(warning.message)]
    assert message.startswith("the search has no ticket for 25%, 10%: it is at step 10 of 50.")


def test_resumed_from_a_checkpoint_it_finds_the_same_tickets(tmp_path):
    whole = PepCallback(["25%", "10%"], steps=30)
    fit(Clicks(), [whole], tmp_path, epochs=3)
    first = PepCallback(["25%", "10%"], steps=30)
    trainer = fit(Clicks(), [first], tmp_path, epochs=2)
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    resumed = PepCallback(["25%", "10%"], steps=30)
    fit(Clicks(), [resumed], tmp_path, epochs=3, checkpoint=tmp_path / "two.ckpt")
    for ours, theirs in zip(resumed.tickets, whole.tickets, strict=True):
        assert all(torch.equal(mask, theirs.masks[name]) for name, mask in ours.masks.items())
        assert torch.equal(ours.initial.values["users"], theirs.initial.values["users"])


def search_in_float64(folder, **settings):
    torch.set_default_dtype(torch.float64)
    try:
        module, search = Clicks(), PepCallback(["25%", "10%"], steps=30)
        fit(module, [search], folder, epochs=3, **settings)
        return [ticket.masks for ticket in search.tickets], module.users.seen
    finally:
        torch.set_default_dtype(torch.float32)


def search_under_ddp(rank, folder):
    os.environ["LOCAL_RANK"] = str(rank)  # Lightning starts no processes
    torch.set_default_dtype(torch.float64)
    own = loader(rank, 2)  # Lightning's sampler would shuffle
    return search_in_float64(folder, strategy="ddp", devices=2, rows=own, use_distributed_sampler=False)


def test_two_processes_find_the_tickets_of_one(tmp_path):
    expected, seen = search_in_float64(tmp_path)
    assert len(expected) == 2
    for masks, seen_there in run_in_processes(search_under_ddp, tmp_path):
        assert torch.equal(seen_there, seen)
        for found, reference in zip(masks, expected, strict=True):
            assert all(torch.equal(found[name], mask) for name, mask in reference.items())
