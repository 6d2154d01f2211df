"""Golden runs give the results in expected.json, bit for bit, where processor and versions are the same."""

import pytest
import runs


@pytest.fixture(scope="module")
def expected():
    found = runs.load_expected()
    if lines := runs.environment_differences(found):
        pytest.skip(f"expected.json was made in another environment ({'; '.join(lines)}); exact results may differ")
    return found["runs"]


@pytest.mark.slow
@pytest.mark.parametrize("name", runs.RUNS)
def test_a_golden_run_gives_the_expected_results(name, expected, tmp_path):
    lines = runs.differences(expected[name], runs.record(name, tmp_path / "run"))
    assert not lines, "\n".join(["results differ from tests/golden/expected.json:", *lines])


def test_a_resumed_run_is_expected_to_end_as_an_uninterrupted_one():
    found = runs.load_expected()["runs"]
    assert found.keys() == runs.RUNS.keys()
    assert not runs.differences(*(found[name] for name in runs.SAME))


def test_every_difference_is_found():
    left = {"a": [1, {"b": 0.5}], "gone": 1, "list": [1]}
    right = {"a": [1, {"b": 0.25}], "new": None, "list": [1, 2]}
    assert runs.differences(left, left) == []
    assert runs.differences(left, right) == [
        "a / 1 / b: expected 0.5, found 0.25",
        "gone: expected 1, found 'nothing'",
        "list: expected [1], found [1, 2]",
        "new: expected 'nothing', found None",
    ]
