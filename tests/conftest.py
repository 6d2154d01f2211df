"""What all tests share: where real data is, and quiet, repeatable hypothesis."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["search_toys"]

settings.register_profile("thresher", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("thresher")


# started in the background (`make test &`) the shell has Ctrl-C ignored, which the tests of Ctrl-C must not inherit
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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


@pytest.fixture(scope="session")
def small_table(tmp_path_factory):
    """An encoded table with three fields of signal and three of noise, made on the fly."""
    from thresher.data.config import DataConfig, SyntheticConfig
    from thresher.data.encode.encode import encode
    from thresher.data.encode.sources import build_source

    rows = SyntheticConfig(num_rows=6_000, num_signal_fields=3, num_noise_fields=3, field_size=40, seed=1)
    source = build_source(DataConfig(source="synthetic", synthetic=rows))
    return encode(source, tmp_path_factory.mktemp("small") / "encoded")


@pytest.fixture
def reads_of_test_split(monkeypatch):
    """How often a test split was evaluated."""
    from thresher.experiment import retrain

    reads = []
    evaluate = retrain.evaluate
    monkeypatch.setattr(retrain, "evaluate", lambda *args, **more: reads.append(1) or evaluate(*args, **more))
    return reads


@pytest.fixture(scope="module")
def without_pictures():
    """Empty files in place of pictures, which take longer to draw than small models to train."""
    from matplotlib.figure import Figure

    def save_nothing(figure: Figure, path: str | Path, **settings: object) -> None:
        Path(path).write_bytes(b"")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save_nothing)
        yield
