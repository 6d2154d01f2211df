"""The progress of a search says how long it takes."""

from dataclasses import replace

import pytest

from search_toys import SEARCH
from thresher.baselines.magnitude import IterativeMagnitudeConfig, MagnitudeConfig
from thresher.embeddings.pep import PepConfig
from thresher.search.find_tickets import find_tickets
from thresher.training.progress import ProgressState


@pytest.fixture
def states(planted):
    """Every state that a search reports."""

    def search(embedding, config=SEARCH) -> list[ProgressState]:
        class Recorder:
            def __init__(self):
                self.states: list[ProgressState] = []

            def update(self, state):
                self.states.append(state)

        recorder = Recorder()
        find_tickets(planted.model(embedding), planted.data, ["20%", "5%"], config, seed=1, progress=recorder)
        return recorder.states

    return search


def test_a_plan_with_a_fixed_warm_up_has_a_known_length(states):
    found = states(PepConfig(embedding_dim=4))
    assert {(state.patience, state.planned_epochs) for state in found} == {(None, 5.0)}
    assert found[-1].finished
    assert found[-1].epochs_done == 5


def test_a_warm_up_by_validation_is_followed_by_the_plan(states):
    found = states(PepConfig(embedding_dim=4), replace(SEARCH, warmup_epochs=None, max_warmup_epochs=3))
    lengths = list(dict.fromkeys((state.patience, state.planned_epochs) for state in found))
    assert lengths[0] == (1, 3.0)  # while the warm-up runs: the plan after it
    assert lengths[-1] == (None, found[-1].epochs_done)  # then: all epochs
    assert {state.best_epoch for state in found if state.patience is not None} > {None}


def test_a_search_without_a_plan_ends_by_early_stopping(states):
    found = states(MagnitudeConfig(embedding_dim=4))
    assert {(state.patience, state.planned_epochs) for state in found} == {(3, None)}


def test_finished_rounds_tell_how_long_the_others_take(states):
    found = states(IterativeMagnitudeConfig(embedding_dim=4, round_epochs=2))
    planned = list(dict.fromkeys(state.planned_epochs for state in found))
    assert planned == [None, found[-1].epochs_done]
