"""Runs of these tests draw no pictures; `tests/report` and `tests/experiment/pages` do."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_pictures(request):
    if request.path.parent.name != "pages":
        request.getfixturevalue("without_pictures")
