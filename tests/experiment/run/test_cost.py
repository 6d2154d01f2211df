"""What a run will cost: announced before it starts, in time after a hundred steps, and left over the whole run."""

from dataclasses import replace

import pytest

from thresher.experiment.effort import RetrainingConfig, StageSettings
from thresher.experiment.run.cost import EARLY_SHARE, ExpectedCost, RunEstimate
from thresher.search.budget import parse_budgets
from thresher.search.schedule import SearchConfig
from thresher.training.fit import TrainingConfig
from thresher.training.progress import ProgressState, SilentProgress, StageKind

BUDGETS = parse_budgets("50%,25%")


class Recorded(SilentProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.later: list[float] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def update(self, state: ProgressState) -> None:
        self.later.append(state.later_epochs)


def expected(**changes) -> ExpectedCost:
    known = {"effort": "standard", "search": SearchConfig(halving_epochs=1.5), "training": TrainingConfig()}
    retraining = RetrainingConfig(max_epochs=4)
    settings = StageSettings(**(known | {"retraining": retraining} | changes))
    found = ExpectedCost.of(settings, BUDGETS, num_entries=1000, steps_per_epoch=100, num_plans=2, num_teachers=1)
    assert found is not None
    return found


def test_the_cost_is_the_sum_of_all_stages_in_units_of_the_dense_training():
    # 10 dense epochs, a trial of 2 × 2, 2 halvings of 1.5 epochs, 2 retrainings of at most 4
    assert expected().description() == (
        "Effort standard: about 1.9 times the dense training, if that takes 10 epochs (dense training 1.0, trial 0.4, "
        "search 0.3, retraining of 2 sizes 0.2 or at most 0.8), plus the training without an embedding"
    )


def test_plans_in_fractions_of_an_epoch_count():
    assert expected(search=SearchConfig(plan_epochs=0.25)).search_epochs(1) == 0.25
    fast = expected(effort="fast", search=SearchConfig(), retraining=RetrainingConfig())
    assert fast.search_epochs(1) == pytest.approx(0.1)


def test_a_retraining_is_expected_to_take_an_epoch_unless_it_is_shorter():
    lengths = {most: expected(retraining=RetrainingConfig(max_epochs=most)) for most in (0.25, 1, 2, 10)}
    assert {most: cost.likely_retraining_epochs(10) for most, cost in lengths.items()} == {
        0.25: 0.25, 1: 1, 2: 1, 10: 10 * EARLY_SHARE,
    }  # fmt: skip


def test_a_search_from_initial_weights_is_not_announced():
    settings = StageSettings(effort="paper", search=SearchConfig(), training=TrainingConfig())
    assert (
        ExpectedCost.of(settings, BUDGETS, num_entries=1000, steps_per_epoch=100, num_plans=1, num_teachers=1) is None
    )


def test_states_carry_the_epochs_of_later_stages():
    recorded = Recorded()
    estimate = RunEstimate(recorded, expected())

    def update(kind: StageKind, **changes) -> None:
        estimate.update(ProgressState(stage="any name", kind=kind, **({"max_epochs": 4, "num_steps": 200} | changes)))

    update("floor")
    update("dense", max_epochs=60)
    assert "about 1.9 times the dense training" in recorded.notes[0]
    update("dense", max_epochs=60, step=100)
    assert recorded.notes[1].startswith("An epoch takes about 0 s")
    update("dense", max_epochs=60, epoch=5, step=200, finished=True)
    update("trial")
    update("search")
    update("retraining")
    update("retraining", epoch=2, step=200, finished=True)
    update("retraining")
    both = 2 * 4 * EARLY_SHARE
    assert recorded.later == pytest.approx(
        [10 + 4 + 3 + both] + [4 + 3 + both] * 3 + [3 + both, both, both / 2, 2.0, 0.0]
    )


def test_a_retraining_of_a_part_of_an_epoch_counts_as_that_part():
    recorded = Recorded()
    estimate = RunEstimate(recorded, expected(retraining=RetrainingConfig(max_epochs=0.25)))
    part = ProgressState(stage="retrain 50%", kind="retraining", max_epochs=1, num_steps=50, epoch_share=0.25)
    estimate.update(part)
    estimate.update(replace(part, step=50, finished=True))
    assert recorded.later == [0.25, 0.25]
