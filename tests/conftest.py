"""What all tests share: where real data is, and quiet, repeatable hypothesis."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("thresher", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("thresher")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with real datasets, e.g. `ml-1m/`; tests that need it are skipped without it."""
    folder = os.environ.get("THRESHER_DATA_DIR")
    if not folder:
        pytest.skip("needs real data: set THRESHER_DATA_DIR to a folder that holds ml-1m/")
    if not Path(folder).is_dir():
        pytest.fail(f"THRESHER_DATA_DIR={folder} is not a folder")
    return Path(folder)


@pytest.fixture(scope="session")
def movielens_dir(data_dir: Path) -> Path:
    folder = data_dir / "ml-1m"
    if not (folder / "ratings.dat").is_file():
        pytest.skip(f"needs MovieLens-1M: {folder}/ratings.dat does not exist")
    return folder
