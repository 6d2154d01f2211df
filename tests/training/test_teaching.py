"""Which ways to teach are open, how far they are tried, and what cannot be told of teachers."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.errors import ConfigError
from thresher.training.teaching import check_teachers, check_teaching, teachings, try_teachings


@given(st.lists(st.sampled_from([0.5, 0.5009, 0.6, 0.7]), min_size=3, max_size=3))
def test_teaching_goes_as_far_as_validation_rises_by_more_than_noise(aucs):
    ways, asked = teachings(None, None), []
    known = dict(zip(ways, aucs, strict=True))

    def validation_auc(way):
        asked.append(way)
        return known[way]

    trial = try_teachings(ways, validation_auc)
    rises = [later >= earlier + 0.001 for earlier, later in pairwise(aucs)]
    steps = rises.index(False) if False in rises else len(rises)
    assert trial.best == ways[steps]
    assert asked == ways[: steps + 2]  # the first that gains nothing is the last that is tried
    assert trial.validation_aucs == {str(way): known[way] for way in asked}
    assert trial.failed is None


@pytest.mark.parametrize(
    ("share", "teach_search", "ways"),
    [
        (None, True, ["by-labels", "searched-taught-1"]),
        (None, False, ["by-labels", "taught-1"]),
        (0.5, None, ["taught-0.5", "searched-taught-0.5"]),
        (0.0, None, ["by-labels"]),
    ],
)
def test_what_is_told_is_not_tried(share, teach_search, ways):
    assert [str(way) for way in teachings(share, teach_search)] == ways


def test_teachers_are_as_many_as_told_and_have_a_share():
    with pytest.raises(ConfigError, match="num_teachers is 0"):
        check_teachers(None, 0, others=0)
    with pytest.raises(ConfigError, match="num_teachers is 3, but teacher_share is 0"):
        check_teachers(0.0, 3, others=0)
    with pytest.raises(ConfigError, match="there are teacher_models, but teacher_share is 0"):
        check_teachers(0.0, 1, others=1)


def test_a_search_without_a_teacher_cannot_be_taught():
    with pytest.raises(ConfigError, match=r"teach_search is true, but teacher_share is 0"):
        check_teaching(0.0, True)
