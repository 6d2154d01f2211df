from fractions import Fraction

import pytest
from hypothesis import example, given, settings, strategies as st

from thresher.errors import BudgetError
from thresher.search.budget import Budget, check_budgets, parse_budgets


@pytest.mark.parametrize(
    ("text", "unit", "amount"),
    [("25000", "parameters", 25_000), ("30k", "parameters", 30_000), ("30K", "parameters", 30_000),
     ("1.5M", "parameters", 1_500_000), ("25,000", "parameters", 25_000), ("2%", "share", Fraction(2, 100)),
     ("0.5 %", "share", Fraction(5, 1000)), ("10%rows", "rows", Fraction(1, 10)),
     ("0.5% rows", "rows", Fraction(1, 200)),
     ("1MB", "bytes", 1_000_000), ("1mb", "bytes", 1_000_000), ("512KiB", "bytes", 524_288), ("1.5GB", "bytes", 1.5e9),
     ("1MB bundle", "bundle", 1_000_000), ("60kbbundle", "bundle", 60_000), ("100B", "bytes", 100),
     ("1,500 B", "bytes", 1500),
     ("16.1k", "parameters", 16_100), ("2.01M", "parameters", 2_010_000), ("8.03KB", "bytes", 8_030)],
)  # fmt: skip
def test_reads_budgets_as_people_write_them(text, unit, amount):
    budget = Budget.parse(text)
    assert (budget.unit, budget.amount) == (unit, amount)


@pytest.mark.parametrize(
    "text",
    ["", "many", "-3", "0", "0%", "101%", "3x", "1.5", "2 %%", "nan", "5b", "1e3", "0.02", "3k bundle", "2%bundle"],
)
def test_invalid_budgets_are_refused_with_examples(text):
    with pytest.raises(BudgetError, match=r"budget .*(30k|above 0|100%)"):
        Budget.parse(text)


@given(st.integers(1, 10**12))
def test_whole_numbers_are_parameters(count):
    assert Budget.parse(count).max_entries(10**13) == count


@settings(max_examples=500)
@given(st.integers(1, 10**12), st.sampled_from([("k", 3), ("M", 6), ("KB", 3), ("GB", 9)]))
def test_decimals_are_read_exactly(count, scale):
    unit, num_decimals = scale
    whole, part = divmod(count, 10**num_decimals)
    assert Budget.parse(f"{whole}.{part:0{num_decimals}}{unit}").amount == count


@settings(max_examples=500)
@given(st.integers(1, 100_000), st.integers(1, 10**13))
@example(900, 2_880_000_000)
def test_a_share_is_exact_in_tables_of_any_size(thousandths, num_entries):
    most = Budget.parse(f"{thousandths // 1000}.{thousandths % 1000:03}%").max_entries(num_entries)
    assert most * 100_000 <= thousandths * num_entries < (most + 1) * 100_000


def test_a_single_one_is_a_list_of_one():
    assert parse_budgets(100) == parse_budgets(Budget.parse("100")) == parse_budgets("100")


def test_lists():
    assert [str(budget) for budget in parse_budgets("50k, 25k,2%,50k")] == ["50k", "25k", "2%"]
    assert len(parse_budgets([1000, "2%", Budget.parse("1MB")])) == 3
    with pytest.raises(BudgetError, match="no budget"):
        parse_budgets(" ")


def test_impossible_budgets_are_refused():
    with pytest.raises(BudgetError, match="above the 1,000 entries"):
        check_budgets(parse_budgets("2k"), 1_000)
    with pytest.raises(BudgetError, match="50MB is above the 4,000 bytes of the searched tables"):
        check_budgets(parse_budgets("50MB"), 1_000)
    check_budgets(parse_budgets("1000,100%,4000B"), 1_000)
    with pytest.raises(BudgetError, match="keeps none of 10 entries"):
        check_budgets(parse_budgets("2%"), 10)


def test_slug_is_a_file_name():
    assert [budget.slug for budget in parse_budgets(["2.5%", "25,000", "1 MB"])] == ["2.5pct", "25000", "1MB"]


def test_a_size_written_twice_is_one_budget():
    budgets = parse_budgets(["30k", "30 k", "30000", "2%", "2.0%", "1MB", "1000KB"])
    assert [str(budget) for budget in budgets] == ["30k", "2%", "1MB"]
