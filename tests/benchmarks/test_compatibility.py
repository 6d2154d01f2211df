"""docs/compatible_models.md has the committed result, and the models written here still work."""

import warnings

import pytest

import compatibility
from thresher._internal.storage.files import read_json

OUTCOMES = [compatibility.Outcome(**one) for one in read_json(compatibility.RESULT)["outcomes"]]


def test_the_page_has_the_table_of_the_result():
    assert compatibility.table_of(OUTCOMES) in compatibility.PAGE.read_text()


def test_the_result_has_every_model_of_every_installed_library():
    for library in compatibility.LIBRARIES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what other libraries say when they are imported
            cases = compatibility.cases_of(library)
        tried = [one.model for one in OUTCOMES if one.library == library]
        if cases is not None and tried:
            assert [case.name for case in cases] == tried


@pytest.mark.parametrize("library", ["recbole", "fuxictr"])
def test_rewritten_models_work(library):
    for case in compatibility.cases_of(library):
        assert compatibility.outcome_of(library, case).reason is None, case.name


def test_a_model_that_does_not_work_is_listed_with_its_reason():
    works = compatibility.Outcome("recbole", "BPR", True, 2)
    fails = compatibility.Outcome("recbole", "Odd", False, reason="attach: it overrides forward")
    table = compatibility.table_of([works, fails])
    assert "| RecBole (rewritten) | BPR | 1 of 2 | Odd: attach: it overrides forward |" in table
    assert "**1 of 2**" in table
