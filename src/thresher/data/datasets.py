"""Named data sets: MovieLens-1M, Criteo and Avazu, preprocessed as by the authors of PEP, and synthetic rows."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.encode.sources import EncodingPlan, describe_files, register_source
from thresher.data.encode.user_files import FilesSource
from thresher.data.read.raw_files import RawChunk, expand_paths, resolve_format
from thresher.data.schema import Field, FileFormat, Label
from thresher.errors import ConfigError, DataError

FIELDS = ("timestamp", "gender", "age", "occupation", "zip", "year", "genre")
ID_FIELDS = ("user", "movie")
INTEGERS = tuple(f"I{at}" for at in range(1, 14))
CATEGORIES = tuple(f"C{at}" for at in range(1, 27))
CRITEO_COLUMNS = ("label", *INTEGERS, *CATEGORIES)
AVAZU_FIELDS = (
    "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category",
    "device_id", "device_ip", "device_model", "device_type", "device_conn_type",
    "C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21",
)  # fmt: skip
MIN_COUNT = 10  # Criteo and Avazu: values that occur fewer times are unknown
_COMPRESSED = ("", ".gz", ".zst")
_RATING_CHUNK_ROWS = 250_000
_SYNTHETIC_CHUNK_ROWS = 65_536
_CALIBRATION_ROWS = 65_536


@register_source("criteo")
def build_criteo_source(config: DataConfig) -> FilesSource:
    """Label, 13 integers and 26 hashed categories; tab-separated, no header, empty values are missing.

    Integers become `floor(ln(x)²)` for x > 2, else x − 2. `data_dir` contains `train.txt` (Kaggle 2014) or
    `day_0 … day_23` (Terabyte log), possibly compressed; instead, `paths` may list the files.
    """
    min_count = config.min_count or MIN_COUNT
    fields = tuple(Field(name=name, transform="log2", min_count=min_count) for name in INTEGERS)
    fields += tuple(Field(name=name, min_count=min_count) for name in CATEGORIES)
    file_format = FileFormat(delimiter="\t", columns=CRITEO_COLUMNS, quote="")
    plan = EncodingPlan.of(config, fields=fields, label=Label(column="label"), file_format=file_format)
    paths = _find_files(config, ("train.txt", "train.csv", "train.tsv", "day_*"))
    return FilesSource(paths, plan, (None,) * len(paths), file_format, config.block_bytes)


@register_source("avazu")
def build_avazu_source(config: DataConfig) -> FilesSource:
    """A CSV (Kaggle 2014): `train.csv` or `train` in `data_dir`. `id` is dropped, the other columns are fields."""
    paths = _find_files(config, ("train.csv", "train"))
    file_format = FileFormat(delimiter=",", quote="")
    fields = tuple(Field(name=name, min_count=config.min_count or MIN_COUNT) for name in AVAZU_FIELDS)
    resolved = resolve_format(paths[0], file_format)
    plan = EncodingPlan.of(config, fields=fields, label=Label(column="click"), file_format=resolved)
    return FilesSource(paths, plan, (None,) * len(paths), file_format, config.block_bytes)


def _find_files(config: DataConfig, names: tuple[str, ...]) -> tuple[Path, ...]:
    """The files of a named source: `paths`, or the first of these names in `data_dir`, plain rather than compressed."""
    if config.paths:
        return expand_paths(config.paths)
    if config.data_dir is None:
        raise ConfigError(f"{config.source} needs data_dir (a folder with {names[0]}) or paths")
    folder = Path(config.data_dir)
    for name in names:
        found: dict[str, Path] = {}
        for suffix in _COMPRESSED:
            for path in folder.glob(name + suffix):
                if suffix or path.suffix not in _COMPRESSED[1:]:
                    found.setdefault(path.name.removesuffix(suffix), path)
        if found:
            parts = {name: re.findall(r"(\D*)(\d*)", name) for name in found}  # day_2 comes before day_10
            ordered = sorted(found, key=lambda name: [(text, int(number or 0)) for text, number in parts[name]])
            return tuple(found[name] for name in ordered)
    raise DataError(f"contains none of {', '.join(names)}, also not .gz or .zst; set data.paths", file=folder)


@dataclass(frozen=True)
class MovieLensSource:
    """The joined rows of `ratings.dat`, `users.dat` and `movies.dat`, in the order of the ratings."""

    folder: Path
    plan: EncodingPlan
    rows: pl.DataFrame = field(repr=False)
    num_bytes = None

    def inputs(self) -> Mapping[str, Any]:
        return {"files": describe_files([self.folder / f"{name}.dat" for name in ("ratings", "users", "movies")])}

    def chunks(self) -> Iterator[RawChunk]:
        for frame in self.rows.iter_slices(_RATING_CHUNK_ROWS):
            yield RawChunk(frame, self.folder / "ratings.dat")


@register_source("movielens-1m")
def build_movielens_source(config: DataConfig) -> MovieLensSource:
    """F. M. Harper, J. A. Konstan, TiiS 2015. Ratings 4–5 are positive, 1–2 negative, 3 is dropped.

    Fields: timestamp (log² bucket of the seconds since the first rating), gender, age, occupation, zip, year (from the
    title), genre (the whole genre string); `with_ids` adds user and movie.
    """
    if config.data_dir is None or config.paths:
        raise ConfigError("movielens-1m needs data_dir: the folder with ratings.dat, users.dat and movies.dat")
    folder = Path(config.data_dir)
    rows, first_timestamp = read_movielens(folder)
    names = (*FIELDS, *ID_FIELDS) if config.with_ids else FIELDS
    fields = [Field(name=name, min_count=config.min_count or 1) for name in names]
    fields[0] = replace(fields[0], transform="log2", shift=float(first_timestamp))
    return MovieLensSource(folder, EncodingPlan.of(config, fields=tuple(fields), label=Label(column="label")), rows)


def read_movielens(folder: str | Path) -> tuple[pl.DataFrame, int]:
    """Raw rows with a 0/1 label, rating 3 dropped; and the earliest timestamp of the whole ratings file."""
    folder = Path(folder)
    ratings = _read(folder / "ratings.dat", ("user", "movie", "rating", "timestamp"))
    users = _read(folder / "users.dat", ("user", "gender", "age", "occupation", "zip"))
    movies = _read(folder / "movies.dat", ("movie", "title", "genre"))
    ratings = ratings.with_columns(pl.col("rating", "timestamp").cast(pl.Int64))
    first = ratings["timestamp"].min()
    assert isinstance(first, int)
    movies = movies.with_columns(year=pl.col("title").str.slice(-5, 4))
    rows = (
        ratings.filter(pl.col("rating") != 3)
        .join(users, on="user", how="left", maintain_order="left")
        .join(movies, on="movie", how="left", maintain_order="left")
        .with_columns(label=(pl.col("rating") > 3).cast(pl.UInt8))
        .select("label", *FIELDS, *ID_FIELDS)
    )
    if rows.null_count().sum_horizontal()[0]:
        raise DataError("a rating has a user or a movie that is missing in users.dat or movies.dat", file=folder)
    return rows, first


def _read(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    try:
        lines = path.read_text(encoding="latin-1").splitlines()
    except OSError as error:
        problem = f"cannot be read ({error.strerror}); data_dir must be the unpacked ml-1m folder"
        raise DataError(problem, file=path) from error
    parts = pl.Series("line", lines).str.splitn("::", len(columns))
    frame = parts.struct.rename_fields(list(columns)).struct.unnest()
    bad = frame[columns[-1]].is_null()
    if bad.any() or not len(frame):
        line = int(bad.arg_true()[0]) + 1 if len(frame) else 1
        raise DataError(f"expected {len(columns)} parts separated by '::'", file=path, line=line)
    return frame


@dataclass(frozen=True)
class SyntheticSource:
    """Signal fields determine the label, noise fields do not; value frequencies follow Zipf's law."""

    config: SyntheticConfig
    plan: EncodingPlan
    signal_fields: tuple[str, ...]
    noise_fields: tuple[str, ...]
    num_bytes = None

    def inputs(self) -> Mapping[str, Any]:
        return {"synthetic": asdict(self.config)}

    def chunks(self) -> Iterator[RawChunk]:
        truth, num_rows = PlantedTruth(self.config), self.config.num_rows
        for at, start in enumerate(range(0, num_rows, _SYNTHETIC_CHUNK_ROWS)):
            yield RawChunk(self._frame(truth, min(_SYNTHETIC_CHUNK_ROWS, num_rows - start), at))

    def frame(self) -> pl.DataFrame:
        """All rows at once."""
        return pl.concat([chunk.frame for chunk in self.chunks()])

    def _frame(self, truth: "PlantedTruth", rows: int, chunk: int) -> pl.DataFrame:
        generator = np.random.default_rng([self.config.seed, 1, chunk])
        signal = truth.draw(generator, rows, self.config.num_signal_fields)
        noise = truth.draw(generator, rows, self.config.num_noise_fields)
        chance = 1 / (1 + np.exp(-truth.logits(signal)))
        columns: dict[str, Any] = {"label": (generator.random(rows) < chance).astype(np.uint8)}
        columns |= dict(zip(self.signal_fields, signal.T, strict=True))
        columns |= dict(zip(self.noise_fields, noise.T, strict=True))
        return pl.DataFrame(columns).with_columns(pl.exclude("label").cast(pl.String))


class PlantedTruth:
    """The model of the labels, with pairwise terms: a weight and a vector for each value of each signal field."""

    def __init__(self, config: SyntheticConfig) -> None:
        generator = np.random.default_rng([config.seed, 0])
        shape = (config.num_signal_fields, config.field_size)
        self._weights = generator.normal(size=shape)
        self._vectors = generator.normal(size=(*shape, config.rank))
        shares = 1 / np.arange(1, config.field_size + 1) ** config.zipf
        self._edges = np.cumsum(shares / shares.sum())
        self._scale, self._bias = 1.0, 0.0
        logits = self.logits(self.draw(generator, _CALIBRATION_ROWS, config.num_signal_fields))
        self._scale = config.signal / float(logits.std()) if logits.std() > 0 else 1.0
        self._bias = _bias_for(logits * self._scale, config.positive_share)

    def draw(self, generator: np.random.Generator, rows: int, num_fields: int) -> NDArray[np.int64]:
        """Values `[rows, num_fields]`; 0 is the most frequent."""
        return np.minimum(np.searchsorted(self._edges, generator.random((rows, num_fields))), len(self._edges) - 1)

    def logits(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        fields = np.arange(values.shape[1])
        first_order = self._weights[fields, values].sum(axis=1)
        vectors = self._vectors[fields, values]  # [rows, fields, rank]
        pairs = (vectors.sum(axis=1) ** 2 - (vectors**2).sum(axis=1)).sum(axis=1) / 2
        return np.asarray((first_order + pairs) * self._scale + self._bias)


@register_source("synthetic")
def build_synthetic_source(config: DataConfig) -> SyntheticSource:
    if config.paths:
        raise ConfigError("data.paths is set, but the source 'synthetic' reads no files")
    signal = tuple(f"signal_{at}" for at in range(config.synthetic.num_signal_fields))
    noise = tuple(f"noise_{at}" for at in range(config.synthetic.num_noise_fields))
    fields = tuple(Field(name=name, min_count=config.min_count or 1) for name in signal + noise)
    plan = EncodingPlan.of(config, fields=fields, label=Label(column="label"))
    return SyntheticSource(config.synthetic, plan, signal, noise)


def _bias_for(logits: NDArray[np.float64], share: float) -> float:
    """The bias that makes the mean probability `share`, by bisection."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        too_low = float(np.mean(1 / (1 + np.exp(-(logits + middle))))) < share
        low, high = (middle, high) if too_low else (low, middle)
    return (low + high) / 2
