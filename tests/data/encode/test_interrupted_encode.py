"""An interrupted encoding leaves no half-written table, and the next call builds the complete table."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from generated_data import write_avazu_like
from thresher._internal.storage.files import exclusive_lock
from thresher.data.config import DataConfig, FieldConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import DataSource, EncodingPlan, build_source
from thresher.data.read.raw_files import RawChunk
from thresher.data.table import EncodedTable
from thresher.errors import DataError, ThresherError

FIELDS = (
    FieldConfig(name="site_id"),
    FieldConfig(name="device_ip", min_count=2),
    FieldConfig(name="C14", transform="log2"),
    FieldConfig(name="C17", transform="quantiles", num_buckets=8),
    FieldConfig(name="bag", column="hour", separator="1", pooling="mean"),
)


def source(path: Path, **settings: Any) -> DataSource:
    config = DataConfig(paths=(str(path),), label="click", fields=FIELDS, bad_rows="skip", **settings)
    return replace(build_source(config), block_bytes=20_000)  # type: ignore[type-var, return-value]


def contents(table: EncodedTable) -> dict[str, bytes]:
    paths = sorted(path for path in table.folder.rglob("*") if path.is_file())
    return {str(path.relative_to(table.folder)): path.read_bytes() for path in paths}


@dataclass(frozen=True)
class Interrupted:
    """A source that is interrupted after some chunks."""

    inner: DataSource
    chunks_left: int

    @property
    def plan(self) -> EncodingPlan:
        return self.inner.plan

    @property
    def num_bytes(self) -> int | None:
        return self.inner.num_bytes

    def inputs(self) -> Mapping[str, Any]:
        return self.inner.inputs()

    def chunks(self) -> Iterator[RawChunk]:
        for number, chunk in enumerate(self.inner.chunks()):
            if number == self.chunks_left:
                raise KeyboardInterrupt
            yield chunk


def test_an_interrupted_run_leaves_nothing(tmp_path: Path) -> None:
    path = write_avazu_like(tmp_path / "rows.csv", 2_000)
    with pytest.raises(KeyboardInterrupt):
        encode(Interrupted(source(path), 3), tmp_path / "out")
    assert [left.name for left in tmp_path.iterdir()] == ["rows.csv"]
    before = contents(encode(source(path, split_seed=1), tmp_path / "out"))
    with pytest.raises(KeyboardInterrupt):
        encode(Interrupted(source(path), 3), tmp_path / "out", overwrite=True)
    assert contents(EncodedTable.open(tmp_path / "out")) == before


@pytest.mark.parametrize("block_bytes", [3_000, 50_000, 1 << 24])
@pytest.mark.parametrize("kind", ["csv", "csv.zst", "parquet"])
def test_chunk_sizes_do_not_change_the_table(tmp_path: Path, block_bytes: int, kind: str) -> None:
    path = write_avazu_like(tmp_path / "rows.csv", 1_000)
    if kind != "csv":
        rows, path = pl.read_csv(path, infer_schema=False), tmp_path / f"rows.{kind}"
        rows.write_parquet(path) if kind == "parquet" else rows.lazy().sink_csv(path, compression="zstd")
    expected = contents(encode(source(path), tmp_path / "expected"))
    other = replace(source(path), block_bytes=block_bytes)  # type: ignore[type-var]
    assert contents(encode(other, tmp_path / "out")) == expected  # type: ignore[arg-type]


def test_values_written_to_disk_early_do_not_change_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_avazu_like(tmp_path / "rows.csv", 1_000)
    expected = contents(encode(source(path), tmp_path / "expected"))
    monkeypatch.setattr("thresher.data.encode.rows_to_codes.MAX_VALUES_IN_MEMORY", 10)
    assert contents(encode(source(path), tmp_path / "out")) == expected


class Killed(BaseException):
    """Stands for the end of the process."""


@dataclass
class Kill:
    """After `changes_left` renames and removals no more are done, as if the process were killed."""

    changes_left: int

    def __call__(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def change_or_die(*args: Any, **settings: Any) -> Any:
            if self.changes_left == 0:
                raise Killed
            self.changes_left -= 1
            return change(*args, **settings)

        return change_or_die


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_kill_while_the_table_is_put_in_place_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    path = write_avazu_like(tmp_path / "rows.csv", 300)
    old, new = source(path, split_seed=1), source(path)
    before, expected = (contents(encode(s, tmp_path / name)) for s, name in ((old, "before"), (new, "expected")))
    num_kills, done = 0, False
    while not done:
        folder = tmp_path / str(num_kills)
        folder.mkdir()
        out = folder / "out"
        if overwrite:
            shutil.copytree(tmp_path / "before", out)
        with monkeypatch.context() as deadly:
            kill = Kill(num_kills)
            for owner, name in ((Path, "unlink"), (Path, "replace"), (Path, "rename"), (shutil, "rmtree")):
                deadly.setattr(owner, name, kill(getattr(owner, name)))
            try:
                encode(new, out, overwrite=overwrite)
                done = True
            except Killed:
                num_kills += 1
        try:
            table = encode(new, out)
        except DataError:  # the old table is unchanged
            assert contents(EncodedTable.open(out)) == before
            table = encode(new, out, overwrite=True)
        assert contents(table) == expected
        assert [left.name for left in folder.iterdir()] == ["out"]
    assert num_kills >= (4 if overwrite else 2)


PROGRAM = """
import os, signal, sys
from thresher.data.config import DataConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
def kill(done, total, message):
    if message == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
encode(build_source(DataConfig(paths=(sys.argv[1],), label="click")), sys.argv[2], progress=kill)
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["reading", "vocabularies", "encoding"])
def test_a_killed_process_leaves_no_table_and_the_next_one_cleans_up(tmp_path: Path, stage: str) -> None:
    path = write_avazu_like(tmp_path / "rows.csv", 2_000)
    whole = build_source(DataConfig(paths=(str(path),), label="click"))
    expected = contents(encode(whole, tmp_path / "expected"))
    command = [sys.executable, "-c", PROGRAM, str(path), str(tmp_path / "out"), stage]
    assert subprocess.run(command, env=os.environ, check=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert (tmp_path / "out.partial").exists()
    assert contents(encode(whole, tmp_path / "out")) == expected
    assert not (tmp_path / "out.partial").exists()


def test_two_processes_cannot_encode_into_one_folder(tmp_path: Path) -> None:
    write_avazu_like(tmp_path / "rows.csv", 500)
    partial = tmp_path / "encoded.partial"
    with exclusive_lock(partial):
        (partial / "table.json").write_text("the other's")
        with pytest.raises(ThresherError, match="another process is using"):
            encode(source(tmp_path / "rows.csv"), tmp_path / "encoded")
        assert (partial / "table.json").read_text() == "the other's"
    assert encode(source(tmp_path / "rows.csv"), tmp_path / "encoded").num_rows == 500
