"""Adds `benchmarks/` to the path and provides quick settings with example results."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).parent))
from example_results import write_results

from paper.settings import PaperSettings


@pytest.fixture
def settings(tmp_path):
    return PaperSettings(
        quick=True,
        seeds=(0,),
        plan_seeds=(0,),
        results=tmp_path / "results",
        images=tmp_path / "images",
        temporary=tmp_path / "temporary",
        data_dir=None,
    )


@pytest.fixture
def results(settings):
    write_results(settings.results)
    return settings.results
