"""Bad files, settings and options end with exit code 2 and one message; a small `python -m fuzz.bad_inputs`."""

import os

import pytest

from fuzz.bad_inputs import MAKERS, bad_inputs, make_bundle, problem


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_bad_inputs_are_refused(tmp_path):
    make_bundle(tmp_path)
    for given, own in bad_inputs(tmp_path, 4 * len(MAKERS)):
        assert problem(given, own) is None, given
