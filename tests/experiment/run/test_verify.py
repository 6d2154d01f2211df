"""Resuming: stages whose files are damaged are repeated, and nothing of a killed process stays."""

import json

import numpy as np
import pytest
import torch

from thresher._internal.storage.files import write_json
from thresher._internal.storage.sealed_arrays import save_array
from thresher.errors import FormatError
from thresher.experiment.run.verify import repair, verify_path
from thresher.search.budget import Budget
from thresher.search.ticket import MaskTicket, Provenance, Weights
from thresher.search.ticket_files import load_ticket, save_ticket
from thresher.training.checkpoint import Checkpoint


@pytest.fixture
def run(tmp_path):
    """The folder of a run with a ticket, a finished stage and the weights of a dense model."""
    mask = torch.zeros(4, 2, dtype=torch.bool)
    mask[0] = True
    weights = Weights({"embedding": torch.ones(2)}, {"bias": torch.ones(1)})
    provenance = Provenance(method="pep", seed=0, step=1, epoch=1)
    ticket = MaskTicket(
        budget=Budget.parse("2"), masks={"embedding": mask}, initial=weights, final=weights, provenance=provenance
    )
    save_ticket(ticket, tmp_path / "tickets" / "2")
    write_json(tmp_path / "tickets" / "tickets.json", {"tickets": ["2"]})
    write_json(tmp_path / "dense" / "point.json", {"auc": 0.5})
    Checkpoint({"a": torch.ones(3)}).save(tmp_path / "dense" / "weights.safetensors")
    save_array(tmp_path / "dense" / "soft_labels.npy", np.linspace(0, 1, 9, dtype=np.float32))
    np.save(tmp_path / "mine.npy", np.arange(3))
    return tmp_path


def test_a_whole_run_is_not_changed(run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    repair(run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert [part.problem for part in verify_path(run)] == [None] * 5


@pytest.mark.parametrize("name", ["mask.safetensors", "initial.safetensors", "ticket.json", "manifest.json"])
def test_a_damaged_ticket_is_searched_again(run, name):
    path = run / "tickets" / "2" / name
    content = bytearray(path.read_bytes())
    content[len(content) * 2 // 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(FormatError, match="damaged"):
        load_ticket(path.parent)
    assert sum(part.problem is not None for part in verify_path(run)) == 1
    repair(run)
    assert not (run / "tickets" / "tickets.json").exists()
    assert (run / "dense" / "point.json").exists()


def test_damaged_results_and_weights_are_made_again(run):
    point = run / "dense" / "point.json"
    point.write_text(json.dumps(json.loads(point.read_text()) | {"auc": 0.6}))
    weights = run / "dense" / "weights.safetensors"
    weights.write_bytes(bytes(weights.stat().st_size))
    repair(run)
    assert not point.exists()
    assert not weights.exists()


def test_damaged_soft_labels_are_made_again(run):
    labels = run / "dense" / "soft_labels.npy"
    content = bytearray(labels.read_bytes())
    content[140] ^= 1
    labels.write_bytes(content)
    assert [part.path for part in verify_path(run) if part.problem is not None] == [str(labels)]
    repair(run)
    assert not labels.exists()
    assert (run / "mine.npy").exists()


def test_a_bundle_that_is_missing_is_made_again(run):
    write_json(run / "retrained" / "2" / "point.json", {"auc": 0.5})
    repair(run)
    assert not (run / "retrained" / "2" / "point.json").exists()


def test_what_a_killed_process_left_is_removed(run):
    (run / "tickets" / ".2.99999999.partial").mkdir()
    (run / "tickets" / ".2.99999999.partial" / ".tmpAbCdEf").write_text("of safetensors")
    Checkpoint({"a": torch.ones(3)}).save(run / "tickets" / "checkpoint.safetensors")
    repair(run)
    assert sorted(path.name for path in (run / "tickets").iterdir()) == ["2", "tickets.json"]
