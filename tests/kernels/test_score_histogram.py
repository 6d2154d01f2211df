import pytest
import torch
from hypothesis import given, strategies as st

from thresher.kernels import score_histogram as module
from thresher.kernels.score_histogram import BINS_PER_UNIT, LOWEST, NUM_BINS, ScoreHistogram, clock_from_counts


def exact_scores(weight, deviation, function):
    sizes = weight.double().abs()
    inverse = torch.log(torch.expm1(sizes)) if function == "softplus" else torch.logit(sizes.clamp(max=1.0))
    return inverse - deviation


def plain_counts(scores):
    bins = ((scores - LOWEST) * BINS_PER_UNIT).clamp(0, NUM_BINS - 1).long()
    return torch.bincount(bins.flatten(), minlength=NUM_BINS)


def assert_equal_up_to_rounding(ours, expected):
    """Scores at the edge of a bin may fall to either side."""
    assert int(ours.sum()) == int(expected.sum())
    moved = (ours - expected).cumsum(0).abs()
    assert int(moved.max()) <= 2


@st.composite
def tables(draw):
    N, D = draw(st.integers(1, 40)), draw(st.sampled_from([1, 4, 33]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    weight = torch.randn(N, D, generator=generator) * draw(st.sampled_from([1e-30, 1e-3, 0.3, 20.0]))
    weight[torch.rand(N, D, generator=generator) < 0.1] = 0.0
    deviation = torch.randn(N, draw(st.sampled_from([1, D])), generator=generator)
    return weight, deviation, torch.rand(N, generator=generator) < 0.8


@given(tables(), st.sampled_from(["softplus", "sigmoid"]))
def test_kernel_and_twin_count_the_same(table, function):
    weight, deviation, seen = table
    rows = seen.nonzero().squeeze(1)
    ours = module._count_by_kernel(weight, deviation, rows, rows, function)
    twin = module._count_by_torch(weight, deviation, rows, rows, function)
    assert_equal_up_to_rounding(ours, twin)
    assert_equal_up_to_rounding(ours, plain_counts(exact_scores(weight, deviation, function)[seen]))


@given(tables(), st.integers(0, 100))
def test_counts_follow_row_updates_as_a_full_pass_would(table, seed):
    weight, deviation, seen = table
    generator = torch.Generator().manual_seed(seed)
    histogram = ScoreHistogram(weight, deviation, seen)
    histogram.counts()
    for _ in range(3):
        for _ in range(2):
            ids = (torch.rand(len(weight), generator=generator) < 0.3).nonzero().squeeze(1)
            histogram.expect_changes(ids)
            for tensor in (weight, deviation):  # as a row kernel writes: without a new version
                tensor.numpy()[ids.numpy()] += torch.randn(len(ids), tensor.shape[1], generator=generator).numpy()
            seen[ids] = True
        fresh = ScoreHistogram(weight, deviation, seen)
        assert torch.equal(histogram.counts(), fresh.counts())


def test_a_row_seen_for_the_first_time_counts_without_an_update():
    weight, deviation, seen = torch.rand(5, 2), torch.zeros(5, 2), torch.zeros(5, dtype=torch.bool)
    histogram = ScoreHistogram(weight, deviation, seen)
    assert int(histogram.counts().sum()) == 0
    seen[[1, 3]] = True
    histogram.expect_changes(torch.tensor([1]), torch.tensor([1, 3]))
    assert int(histogram.counts().sum()) == 4


@pytest.mark.parametrize("which", ["weight", "deviation"])
def test_a_write_to_the_whole_table_is_detected(which):
    weight, deviation, seen = torch.rand(50, 4), torch.zeros(50, 4), torch.ones(50, dtype=torch.bool)
    histogram = ScoreHistogram(weight, deviation, seen)
    before = histogram.counts().clone()
    {"weight": weight, "deviation": deviation}[which].add_(1.0)
    histogram.expect_changes(torch.tensor([3]))
    after = histogram.counts()
    assert not torch.equal(before, after)
    assert torch.equal(after, ScoreHistogram(weight, deviation, seen).counts())


def test_rows_may_share_deviations():
    weight, deviation = torch.rand(6, 3), torch.tensor([[0.0], [2.0]])
    groups = torch.tensor([0, 0, 1, 1, 0, 1])
    seen = torch.ones(6, dtype=torch.bool)
    shared = ScoreHistogram(weight, deviation, seen, groups).counts()
    assert torch.equal(shared, ScoreHistogram(weight, deviation[groups], seen).counts())


@given(st.integers(0, 200), st.integers(1, 3000))
def test_the_clock_leaves_about_the_wanted_number(seed, num_kept):
    generator = torch.Generator().manual_seed(seed)
    weight, deviation = torch.randn(1000, 4, generator=generator) * 0.1, torch.zeros(1000, 4)
    seen = torch.ones(1000, dtype=torch.bool)
    clock = clock_from_counts(ScoreHistogram(weight, deviation, seen).counts(), num_kept)
    scores = exact_scores(weight, deviation, "softplus")
    # never off by more than the bin the clock is in
    near = int(((scores - clock).abs() < 1.01 / BINS_PER_UNIT).sum())
    assert abs(int((scores > clock).sum()) - num_kept) <= near
    assert clock_from_counts(torch.zeros(NUM_BINS, dtype=torch.int64), num_kept) == -torch.inf


def test_the_clock_is_minus_infinity_if_everything_is_kept():
    weight, seen = torch.rand(10, 2) + 0.1, torch.ones(10, dtype=torch.bool)
    counts = ScoreHistogram(weight, torch.zeros(10, 2), seen).counts()
    assert clock_from_counts(counts, 20) == -torch.inf
    assert clock_from_counts(counts, 19) > -torch.inf


def test_entries_of_zero_and_rows_never_seen_are_never_above_the_clock():
    weight = torch.tensor([[0.0, 1.0], [5.0, 5.0]])
    counts = ScoreHistogram(weight, torch.zeros(2, 2), torch.tensor([True, False])).counts()
    assert int(counts[0]) == 1  # the zero
    assert int(counts.sum()) == 2
    assert clock_from_counts(counts, 1) == -torch.inf
