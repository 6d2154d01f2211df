"""A method is better only if seeds and splits agree, at equal sizes."""

import pytest
from example_results import point

from paper.verdicts.differences import is_better, is_better_method, paired_differences
from paper.verdicts.equal_budgets import at_equal_budgets
from paper.verdicts.equal_bytes import at_equal_bytes
from thresher.report.frontier import FrontierPoint


def test_differences_use_common_seeds():
    def side(aucs):
        return [FrontierPoint.from_json(point(auc, seed=seed)) for seed, auc in aucs.items()]

    assert paired_differences(side({0: 0.8, 2: 0.9, 1: 0.7}), side({2: 0.5, 0: 0.6, 3: 0.1})) == pytest.approx(
        [0.2, 0.4]
    )
    assert paired_differences(side({0: 0.8}), side({1: 0.8})) == []


@pytest.mark.parametrize(
    ("differences", "better"),
    [
        ([0.0011], True),
        ([0.0050, -0.0005, 0.0040], False),  # a large mean, but one seed disagrees
        ([0.0009], False),
        ([0.0002, 0.0001, 0.0003], False),  # t = 3.5 is not significant
        ([0.0002, 0.0002, 0.0003], True),
        ([0.0008, -0.0001, 0.0009], False),
        ([0.0001, 0.0001, 0.0020], False),  # seeds agree, but one causes the mean
        ([0.0005, 0.0010, 0.0030], False),  # mean 0.0015, not significant
    ],
)
def test_a_difference_must_be_significant(differences, better):
    assert is_better(differences) is better


def test_validation_must_agree_unless_one_method_trains_on_it():
    def points(label, test, validation):
        return [
            FrontierPoint.from_json(point(test + at / 1e5, label=label, seed=at) | {"validation_auc": validation})
            for at in range(3)
        ]

    pep = points("pep", 0.85, 0.849)
    assert is_better_method(pep, points("mde", 0.84, 0.848))
    assert not is_better_method(pep, points("mde", 0.84, 0.850))  # the splits disagree
    assert not is_better_method(points("mde", 0.84, 0.850), pep)
    assert is_better_method(pep, points("darts-emb", 0.84, 0.850))  # trains on the validation rows


def test_a_method_below_its_budget_is_compared_with_a_table_that_is_not_larger():
    points = [
        FrontierPoint.from_json(point(auc, label=label, budget=budget, size=size, seed=seed))
        for label, budget, size, aucs in (
            ("pep", "20k", 20_000, (0.85, 0.85, 0.85)),
            ("pep", "8k", 8_000, (0.84, 0.84, 0.84)),
            ("mde", "20k", 9_000, (0.835, 0.836, 0.835)),
            ("mde", "8k", 7_900, (0.845, 0.846, 0.845)),
            ("uniform", "8k", 4_000, (0.80, 0.80, 0.80)),
        )
        for seed, auc in enumerate(aucs)
    ]
    text = at_equal_budgets(points, "pep", ("20k", "8k"))
    assert "| mde | – | -0.0053 ± 0.0006 (3) |" in text
    assert "| mde | 9,000 | 0.8353 ± 0.0006 (3) | 8k | +0.0047 ± 0.0006 (3) |" in text
    assert "uniform" not in text  # half the size of the smallest
    assert "that has at most as many parameters: `pep` is better in 1 of 1 comparisons; worse in none." in text
    assert "`pep` is better in 0 of 1 comparisons; worse than mde at 8k (-0.0053 ± 0.0006 (3))." in text


def test_sizes_that_differ_between_seeds_are_compared_by_the_smallest():
    points = [
        FrontierPoint.from_json(point(auc, label=label, budget=budget, size=size, seed=seed))
        for label, budget, sizes, auc in (
            ("pep", "20k", (20_000,) * 3, 0.85),
            ("pep", "8k", (8_000,) * 3, 0.84),
            ("darts-emb", "20k", (20_000, 19_500, 9_000), 0.83),
        )
        for seed, size in enumerate(sizes)
    ]
    text = at_equal_budgets(points, "pep", ("20k", "8k"))
    assert "| darts-emb | 9,000 to 20,000 | 0.8300 ± 0.0000 (3) | 8k | +0.0100 ± 0.0000 (3) |" in text
    assert "that uses the same budget" not in text  # one seed stays below


def test_at_equal_bytes_the_best_smaller_method_is_shown():
    def point(label, size, storage_bytes, auc, budget=None):
        return FrontierPoint(
            label=label, budget=budget, num_parameters=size, storage_bytes=storage_bytes, test_auc=auc, seed=0,
            validation_auc=auc, validation_logloss=0.4,
        )  # fmt: skip

    points = [
        point("pep", 100, 500, 0.80, "100"), point("quantized", 400, 400, 0.82), point("quantized", 800, 800, 0.9),
        point("pep", 50, 250, 0.79, "50"), point("mde", 50, 200, 0.7, "50"),
        point("autodim", 50, 240, 0.78, "50"),  # trains on the rows by which the best is chosen
    ]  # fmt: skip
    text = at_equal_bytes(points, ["pep"], reverse=["quantized"])
    large, small, _, excluded, _, in_reverse = text.splitlines()[2:]
    assert "quantized, 400 parameters | 400 | 0.8200 (-0.0200 (1))" in large
    assert excluded == "Excluded from the other methods: `autodim`, which train on the validation rows."
    assert "mde, 50 parameters | 200 | 0.7000 (+0.0900 (1))" in small
    assert "quantized with 800 (-0.1000 (1)), quantized with 400 (-0.0300 (1))" in in_reverse
