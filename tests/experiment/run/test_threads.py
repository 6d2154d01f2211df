"""A run that is resumed with another number of threads says so."""

import logging

import pytest
import torch

from thresher._internal.storage.files import read_json
from thresher.experiment.config import RunConfig
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.threads import THREADS, note_threads


@pytest.fixture
def threads():
    """The number of threads, restored afterwards."""
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


def test_another_number_of_threads_is_reported(tmp_path, caplog, threads):
    Run.start(tmp_path / "run", RunConfig())
    Run.start(tmp_path / "run", RunConfig(), resume=True)
    assert not caplog.records
    torch.set_num_threads(threads + 1)
    with caplog.at_level(logging.WARNING):
        Run.start(tmp_path / "run", RunConfig(), resume=True)
    assert f"begun with {threads} threads and is resumed with {threads + 1}" in caplog.text
    assert read_json(tmp_path / "run" / THREADS)["threads"] == threads


def test_a_damaged_number_is_stored_again(tmp_path, threads):
    (tmp_path / THREADS).write_text("{")
    note_threads(tmp_path)
    assert read_json(tmp_path / THREADS)["threads"] == threads
