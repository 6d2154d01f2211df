"""MovieLens-1M, preprocessed as by the authors of PEP: rating 3 dropped, 4–5 positive, 1–2 negative, seven fields.

Fields: timestamp (log² bucket of the seconds since the first rating), gender, age, occupation, zip, year (from the
title), genre (the whole genre string); `with_ids` adds user and movie. F. M. Harper, J. A. Konstan, TiiS 2015.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from thresher.data.config import DataConfig
from thresher.data.encode.sources import EncodingPlan, describe_files, register_source
from thresher.data.read.raw_files import RawChunk
from thresher.data.schema import Field, Label
from thresher.errors import ConfigError, DataError

FIELDS = ("timestamp", "gender", "age", "occupation", "zip", "year", "genre")
ID_FIELDS = ("user", "movie")
_CHUNK_ROWS = 250_000


@dataclass(frozen=True)
class MovieLensSource:
    """The joined rows of `ratings.dat`, `users.dat` and `movies.dat`, in the order of the ratings."""

    folder: Path
    plan: EncodingPlan
    rows: pl.DataFrame = field(repr=False)

    @property
    def num_bytes(self) -> int | None:
        return None

    def inputs(self) -> Mapping[str, Any]:
        return {"files": describe_files([self.folder / f"{name}.dat" for name in ("ratings", "users", "movies")])}

    def chunks(self) -> Iterator[RawChunk]:
        for frame in self.rows.iter_slices(_CHUNK_ROWS):
            yield RawChunk(frame, self.folder / "ratings.dat")


@register_source("movielens-1m")
def build_movielens_source(config: DataConfig) -> MovieLensSource:
    if config.data_dir is None or config.paths:
        raise ConfigError("movielens-1m needs data_dir: the folder with ratings.dat, users.dat and movies.dat")
    folder = Path(config.data_dir)
    rows, first_timestamp = read_movielens(folder)
    names = (*FIELDS, *ID_FIELDS) if config.with_ids else FIELDS
    plan = EncodingPlan.of(
        config,
        fields=tuple(
            Field(
                name=name,
                transform="log2" if name == "timestamp" else "none",
                shift=float(first_timestamp) if name == "timestamp" else 0.0,
                min_count=config.min_count or 1,
            )
            for name in names
        ),
        label=Label(column="label"),
    )
    return MovieLensSource(folder, plan, rows)


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
        raise DataError(
            f"cannot be read ({error.strerror}); data_dir must be the unpacked ml-1m folder", file=path
        ) from error
    parts = pl.Series("line", lines).str.splitn("::", len(columns))
    frame = parts.struct.rename_fields(list(columns)).struct.unnest()
    bad = frame[columns[-1]].is_null()
    if bad.any() or not len(frame):
        line = int(bad.arg_true()[0]) + 1 if len(frame) else 1
        raise DataError(f"expected {len(columns)} parts separated by '::'", file=path, line=line)
    return frame
