"""PaperSettings: data, results, images and seeds of a full or quick reproduction."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from thresher._internal.storage.files import atomic_file
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.errors import ConfigError
from thresher.experiment.comparison.compare_config import CompareConfig, with_epochs
from thresher.experiment.config import RunConfig
from thresher.models.autoint import AutoIntConfig
from thresher.models.base import ModelConfig
from thresher.models.layers import DeepTermConfig

BENCHMARKS = Path(__file__).parent.parent
REPOSITORY = BENCHMARKS.parent
EXPERIMENTS = BENCHMARKS / "experiments"
FOLDERS = {"movielens-1m": "ml-1m", "criteo": "criteo", "avazu": "avazu"}
"""Data set → its folder in THRESHER_DATA_DIR."""
DATASET_NAMES = {"movielens-1m": "MovieLens-1M", "criteo": "Criteo (small)", "avazu": "Avazu (small)"}
"""Data set → name in figures and tables."""
MODELS = ("fm", "deepfm", "autoint", "autoint-lr")
MODEL_NAMES = {"lr": "LR", "fm": "FM", "deepfm": "DeepFM", "autoint": "AutoInt", "autoint-lr": "AutoInt+LR"}
"""Model → name in figures and tables."""
QUICK_EPOCHS = 4


@dataclass(frozen=True, kw_only=True)
class PaperSettings:
    """Settings of one reproduction.

    Attributes:
        quick: few rows, few epochs, one seed; takes minutes.
        seeds: seeds of every method.
        plan_seeds: seeds of the most important results, PEP plan and its dense model.
        results: one folder of JSON files per part.
        images: figures of all parts.
        temporary: runs, encoded tables and checkpoints; can be deleted.
        data_dir: value of THRESHER_DATA_DIR. Without it, quick mode uses synthetic rows.
        models: models to run; figures and page show all results.
    """

    quick: bool
    seeds: tuple[int, ...]
    plan_seeds: tuple[int, ...]
    results: Path
    images: Path
    temporary: Path
    data_dir: Path | None
    models: tuple[str, ...] = MODELS

    @classmethod
    def of(cls, *, quick: bool, seeds: Sequence[int] | None = None, models: Sequence[str] = MODELS) -> "PaperSettings":
        data_dir = os.environ.get("THRESHER_DATA_DIR")
        temporary = BENCHMARKS / "temporary" / ("paper-quick" if quick else "paper")
        usual, most = ((0,), (0,)) if quick else ((0, 1, 2), (0, 1, 2, 3, 4))
        return cls(
            quick=quick,
            seeds=tuple(seeds) if seeds else usual,
            plan_seeds=tuple(seeds) if seeds else most,
            results=temporary / "results" if quick else BENCHMARKS / "results" / "paper",
            images=temporary / "images" if quick else REPOSITORY / "docs" / "images" / "paper",
            temporary=temporary,
            data_dir=Path(data_dir) if data_dir else None,
            models=tuple(models),
        )

    @property
    def page(self) -> Path:
        return self.results.parent / "page.md" if self.quick else REPOSITORY / "docs" / "reproducing_the_paper.md"

    def result_path(self, part: str, name: str) -> Path:
        return self.results / part / f"{name}.json"

    @property
    def experiment_results(self) -> Path:
        """Folder of the results of `benchmarks/experiments/*.toml`; a full run shares it with `benchmarks/run.py`."""
        return self.results / "experiments" if self.quick else BENCHMARKS / "results"

    def data(self, source: str) -> DataConfig:
        """Return a data set of the paper; in quick mode a small part of it, or synthetic rows without `data_dir`."""
        if self.data_dir is None:
            if not self.quick:
                raise ConfigError(
                    f"THRESHER_DATA_DIR is not set. Set it to the folder that contains {FOLDERS[source]}/."
                )
            rows = SyntheticConfig(num_rows=20_000, num_signal_fields=4, num_noise_fields=3, field_size=500)
            return DataConfig(source="synthetic", synthetic=rows)
        folder = self.data_dir / FOLDERS[source]
        if self.quick:
            folder = _small_copy(source, folder, self.temporary / "data" / FOLDERS[source])
        return DataConfig(source=source, data_dir=str(folder))

    def portable_data(self, source: str) -> DataConfig:
        """Return the data set as stored in result files: without the path on this machine."""
        return self.data(source) if self.quick else DataConfig(source=source, data_dir=FOLDERS[source])

    def shrink_if_quick(self, config: RunConfig, source: str) -> RunConfig:
        """Return the settings of a run; in quick mode with little data and few epochs."""
        if not self.quick:
            return config
        short = with_epochs(CompareConfig(search=config.search, training=config.training), QUICK_EPOCHS)
        data = replace(self.data(source), vocabulary_from=config.data.vocabulary_from)
        model, teachers = self.network(config.model), tuple(map(self.network, config.teacher_models))
        return replace(
            config, data=data, model=model, teacher_models=teachers, search=short.search, training=short.training
        )

    def network(self, model: ModelConfig) -> ModelConfig:
        """Return a model; in quick mode with a small network."""
        if not self.quick or not isinstance(model, DeepTermConfig):
            return model
        model = replace(model, hidden_sizes=(32,))
        return replace(model, num_layers=1, attention_dim=16) if isinstance(model, AutoIntConfig) else model


def _small_copy(source: str, folder: Path, small: Path) -> Path:
    """Copy a part of the raw files: about 40,000 rows of MovieLens-1M, 20,000 of Criteo, 10,000 of Avazu."""
    if source == "movielens-1m":
        _copy_lines(folder / "ratings.dat", small / "ratings.dat", 55_000, every=18)
        for name in ("users.dat", "movies.dat"):
            _copy_lines(folder / name, small / name, None)
    else:
        name = "train.txt" if source == "criteo" else "train.csv"
        _copy_lines(folder / name, small / name, 20_000 if source == "criteo" else 10_000)
    return small


def _copy_lines(source: Path, target: Path, max_lines: int | None, *, every: int = 1) -> None:
    if not target.exists():
        with source.open("rb") as lines, atomic_file(target) as beside, beside.open("wb") as copied:
            copied.writelines(islice(lines, 0, None if max_lines is None else max_lines * every, every))
