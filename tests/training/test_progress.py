import pytest

from thresher.training.progress import ProgressState, TimeLeft


def state(epoch: int, step: int = 10, **changes) -> ProgressState:
    known = {"stage": "dense", "max_epochs": 60, "num_steps": 10, "epoch": epoch, "step": step}
    return ProgressState(**(known | changes))


def trained(best_epoch: int, patience: int = 3) -> TimeLeft:
    """After one training, whose best epoch was this one."""
    left = TimeLeft()
    left.update(state(1), 0.0)
    left.update(state(best_epoch + patience, best_epoch=best_epoch, patience=patience, finished=True), 100.0)
    return left


def test_nothing_is_estimated_without_a_state_or_before_the_first_validation():
    left = TimeLeft()
    assert (left.num_epochs(), left.seconds(5.0)) == (None, None)
    left.update(state(1, 5, patience=3), 0.0)
    assert (left.num_epochs(), left.seconds(5.0)) == (None, None)


def test_a_planned_stage_ends_with_its_plan():
    left = TimeLeft()
    left.update(state(1, 0, planned_epochs=4.5), 0.0)
    left.update(state(2, 5, planned_epochs=4.5), 30.0)  # 1.5 epochs in 30 seconds
    assert left.num_epochs() == 4.5
    assert left.seconds(30.0) == pytest.approx(60.0)


def test_without_plan_and_early_stopping_the_maximum_counts():
    left = TimeLeft()
    left.update(state(1, 0, max_epochs=1), 0.0)
    left.update(state(1, 5, max_epochs=1), 10.0)
    assert left.seconds(10.0) == pytest.approx(10.0)


def test_the_first_training_improves_half_as_long_again_as_so_far():
    left = TimeLeft()
    left.update(state(1, 0, patience=3), 0.0)
    left.update(state(8, best_epoch=8, patience=3), 80.0)
    assert left.num_epochs() == 8 + 3 + 4
    assert left.seconds(80.0) == pytest.approx(70.0)


def test_each_epoch_without_improvement_makes_the_end_more_likely():
    left, expected = TimeLeft(), []
    for epoch in (20, 21, 22, 23):
        left.update(state(epoch, best_epoch=20, patience=4), float(epoch))
        expected.append(left.num_epochs())
    assert expected == [20 + 4 + 10, 20 + 4 + 7.5, 20 + 4 + 5, 20 + 4 + 2.5]


def test_later_trainings_are_expected_to_take_as_long_as_earlier_ones():
    left = trained(best_epoch=20)
    left.update(state(1, 0, stage="retrain", patience=3), 100.0)
    assert left.num_epochs() == 23
    left.update(state(5, stage="retrain", best_epoch=5, patience=3), 110.0)
    assert left.num_epochs() == 23
    assert left.seconds(110.0) == pytest.approx(36.0)
    left.update(state(30, stage="retrain", best_epoch=30, patience=3), 160.0)  # longer than the earlier one
    assert left.num_epochs() == 33


def test_an_estimate_never_exceeds_the_maximum_or_lies_in_the_past():
    left = TimeLeft()
    left.update(state(50, best_epoch=50, patience=3), 0.0)
    assert left.num_epochs() == 60
    left.update(state(7, stage="search", planned_epochs=5.0), 1.0)
    assert left.num_epochs() == 7


def test_a_warm_up_is_followed_by_the_plan():
    left = trained(best_epoch=30)  # with its own patience, so it says nothing about a warm-up
    left.update(state(4, stage="search", best_epoch=4, patience=1, planned_epochs=20.0), 200.0)
    assert left.num_epochs() == 4 + 1 + 2 + 20


def test_steps_done_before_a_resume_do_not_count_for_the_speed():
    left = TimeLeft()
    left.update(state(6, 0, planned_epochs=10.0), 0.0)
    left.update(state(6, planned_epochs=10.0), 7.0)  # one epoch in 7 seconds
    assert left.seconds(7.0) == pytest.approx(28.0)


def test_a_stage_that_runs_again_starts_anew():
    left = TimeLeft()
    left.update(state(1, 0, planned_epochs=2.0), 0.0)
    left.update(state(2, finished=True, planned_epochs=2.0), 1000.0)
    left.update(state(1, 0, planned_epochs=2.0), 1000.0)
    left.update(state(1, planned_epochs=2.0), 1010.0)
    assert left.seconds(1010.0) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("last", "continued"),
    [
        (None, False),
        (state(2, 3), True),
        (state(2, 5), False),  # further than the new state
        (state(1, finished=True), False),
        (state(1, stage="search"), False),
        (state(1, group="fm · pep"), False),
    ],
)
def test_where_a_new_stage_begins(last, continued):
    assert state(2, 4).continues(last) is continued


def test_the_time_left_includes_later_stages():
    left = TimeLeft()
    left.update(state(1, 0, planned_epochs=4.5, later_epochs=3.0), 0.0)
    left.update(state(2, 5, planned_epochs=4.5, later_epochs=3.0), 30.0)  # 1.5 epochs in 30 seconds
    assert left.seconds(30.0) == pytest.approx(60.0 + 60.0)


def test_a_part_of_an_epoch_counts_as_a_part_beside_whole_epochs():
    left = TimeLeft()
    quarter = {"max_epochs": 1, "epoch_share": 0.25, "later_epochs": 0.5}
    left.update(state(1, 0, **quarter), 0.0)
    left.update(state(1, 5, **quarter), 10.0)  # an eighth of all rows in 10 seconds
    assert left.seconds(10.0) == pytest.approx(10 + 4 * 10)
