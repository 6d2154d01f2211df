"""An encoding that is killed goes on where it was, and ends with the same table as one that was not."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import thresher.data.encode.encode as encoding
from thresher._internal.files import exclusive_lock
from thresher.data.batches.split import SPLITS
from thresher.data.config import DataConfig, FieldConfig, SplitConfig
from thresher.data.datasets.shaped_files import write_avazu_shaped
from thresher.data.encode import first_pass
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
    """A source that breaks off after some chunks."""

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

    def chunks(self, position: Mapping[str, int] | None = None) -> Iterator[RawChunk]:
        for number, chunk in enumerate(self.inner.chunks(position)):
            if number == self.chunks_left:
                raise KeyboardInterrupt
            yield chunk


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("split", ["random", "time"])
def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str, packed: bool) -> None:
    path = write_avazu_shaped(tmp_path / "rows.csv", 2_000)
    lines = path.read_text().splitlines()
    lines[700] = "a bad row"
    path.write_text("\n".join(lines) + "\n")
    if packed:
        subprocess.run(["gzip", str(path)], check=True)
        path = tmp_path / "rows.csv.gz"
    settings: dict[str, Any] = {"vocabulary_from": "all"}
    if split == "time":
        settings["split"] = SplitConfig(by="time", column="hour", validation_from="14102900", test_from="14103000")
    expected = contents(encode(source(path, **settings), tmp_path / "expected"))
    monkeypatch.setattr(first_pass, "SAVE_SECONDS", 0.0)
    for chunks in (1, 3, 2):
        with pytest.raises(KeyboardInterrupt):
            encode(Interrupted(source(path, **settings), chunks), tmp_path / "out")
        assert not (tmp_path / "out").exists()
    with (tmp_path / "out.partial" / "train" / "codes.part").open("ab") as file:
        file.write(b"rows after the last journal entry")
    read: list[int] = []
    table = encode(source(path, **settings), tmp_path / "out", progress=lambda done, *_: read.append(done))
    assert contents(table) == expected
    assert table.facts["skipped"] == 1
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("block_bytes", [3_000, 50_000, 1 << 24])
@pytest.mark.parametrize("kind", ["csv", "csv.zst", "parquet"])
def test_chunks_do_not_matter(tmp_path: Path, block_bytes: int, kind: str) -> None:
    path = write_avazu_shaped(tmp_path / "rows.csv", 1_000)
    if kind != "csv":
        rows, path = pl.read_csv(path, infer_schema=False), tmp_path / f"rows.{kind}"
        rows.write_parquet(path) if kind == "parquet" else rows.lazy().sink_csv(path, compression="zstd")
    expected = contents(encode(source(path), tmp_path / "expected"))
    other = replace(source(path), block_bytes=block_bytes)  # type: ignore[type-var]
    assert contents(encode(other, tmp_path / "out")) == expected  # type: ignore[arg-type]


def test_an_interrupted_run_over_other_settings_starts_anew(tmp_path: Path) -> None:
    path = write_avazu_shaped(tmp_path / "rows.csv", 1_000)
    with pytest.raises(KeyboardInterrupt):
        encode(Interrupted(source(path), 2), tmp_path / "out")
    expected = contents(encode(source(path, split_seed=1), tmp_path / "expected"))
    assert contents(encode(source(path, split_seed=1), tmp_path / "out")) == expected


class Killed(BaseException):
    """Nobody catches it."""


@dataclass
class Kill:
    """Once `changes_left` files or folders are renamed or removed, nothing more is: the process is dead."""

    changes_left: int

    def __call__(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def before(*args: Any, **settings: Any) -> Any:
            if self.changes_left == 0:
                raise Killed
            self.changes_left -= 1
            return change(*args, **settings)

        return before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_killed_at_its_end_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    path = write_avazu_shaped(tmp_path / "rows.csv", 300)
    old, new = source(path, split_seed=1), source(path)
    before, expected = (contents(encode(s, tmp_path / name)) for s, name in ((old, "before"), (new, "expected")))
    with monkeypatch.context() as deadly:
        deadly.setattr(encoding, "write_table", Kill(0)(encoding.write_table))
        with pytest.raises(Killed):  # the first pass is done
            encode(new, tmp_path / "begun")
    num_kills, done = 0, False
    while not done:
        where = tmp_path / str(num_kills)
        out = where / "out"
        shutil.copytree(tmp_path / "begun.partial", where / "out.partial")
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
            table = encode(Interrupted(new, 0), out)
        except DataError:  # the old table is in its place, as it was
            assert contents(EncodedTable.open(out)) == before
            table = encode(Interrupted(new, 0), out, overwrite=True)
        assert contents(table) == expected
        assert [left.name for left in where.iterdir()] == ["out"]
    assert num_kills > 10


PROGRAM = """
import sys
from pathlib import Path
from thresher.data.encode import first_pass
first_pass.SAVE_SECONDS = 0.0
from tests.data.encode.test_resume import encode, source
def report(done, total, message):
    print(message, flush=True)
encode(source(Path(sys.argv[1])), sys.argv[2], progress=report)
"""


@pytest.mark.slow
def test_a_killed_process_goes_on(tmp_path: Path) -> None:
    path = write_avazu_shaped(tmp_path / "rows.csv", 20_000)
    expected = contents(encode(source(path), tmp_path / "expected"))
    command = [sys.executable, "-c", PROGRAM, str(path), str(tmp_path / "out")]
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, f"{root}/src"])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=environment) as process:
        assert process.stdout is not None
        for _ in range(40):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / "out.partial" / "journal.json").exists()
    first_messages: list[str] = []
    started = time.monotonic()
    table = encode(source(path), tmp_path / "out", progress=lambda _a, _b, message: first_messages.append(message))
    assert time.monotonic() - started < 60
    assert first_messages.count("reading") < 20_000 * 150 // 20_000  # not from the beginning
    assert contents(table) == expected
    for name in SPLITS:
        assert np.array_equal(table.split(name).labels, EncodedTable.open(tmp_path / "expected").split(name).labels)


def test_two_at_once_do_not_write_into_one_folder(tmp_path):
    write_avazu_shaped(tmp_path / "rows.csv", 500)
    partial = tmp_path / "encoded.partial"
    with exclusive_lock(partial):
        (partial / "journal.json").write_text("the other's")
        with pytest.raises(ThresherError, match="another process is using"):
            encode(source(tmp_path / "rows.csv"), tmp_path / "encoded")
        assert (partial / "journal.json").read_text() == "the other's"
    assert encode(source(tmp_path / "rows.csv"), tmp_path / "encoded").num_rows == 500
