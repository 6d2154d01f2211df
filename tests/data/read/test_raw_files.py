import gzip
from pathlib import Path
from typing import Literal

import polars as pl
import pytest

from thresher.data.config import DataConfig
from thresher.data.encode.sources import build_source
from thresher.data.read.raw_files import expand_paths, read_blocks, read_chunks, resolve_format
from thresher.data.schema import FileFormat
from thresher.errors import DataError

PLAIN = b"label,a,b\n0,x,1\n1,y,\n"
ROWS = [("0", "x", "1"), ("1", "y", "")]


def rows_of(path: Path, block_bytes: int = 1 << 20, **settings: object) -> list[tuple[str, ...]]:
    wanted = FileFormat(**settings)  # type: ignore[arg-type]
    resolved = resolve_format(path, wanted)
    chunks = read_chunks(path, resolved, header=not wanted.columns, block_bytes=block_bytes)
    return [row for chunk in chunks for row in chunk.frame.rows()]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("plain.csv", PLAIN),
        ("no_last_newline.csv", PLAIN[:-1]),
        ("crlf.csv", PLAIN.replace(b"\n", b"\r\n")),
        ("bom.csv", b"\xef\xbb\xbf" + PLAIN),
        ("blank_lines.csv", b"\nlabel,a,b\n\n0,x,1\n\r\n1,y,\n\n"),
        ("quoted.csv", b'"label","a",b\n"0","x","1"\n\n1,y,""\n'),
        ("tabs.tsv", PLAIN.replace(b",", b"\t")),
        ("semicolons.txt", PLAIN.replace(b",", b";")),
    ],
)
@pytest.mark.parametrize("block_bytes", [4, 1 << 20])
def test_the_same_rows_from_every_file_format(tmp_path: Path, name: str, data: bytes, block_bytes: int) -> None:
    assert rows_of(write(tmp_path / name, data), block_bytes) == ROWS


def test_gzip_and_zstd(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path / "a.csv.gz", gzip.compress(PLAIN))) == ROWS
    pl.DataFrame(ROWS, schema=["label", "a", "b"], orient="row").lazy().sink_csv(
        tmp_path / "a.csv.zst", compression="zstd"
    )
    assert rows_of(tmp_path / "a.csv.zst") == ROWS


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.csv.zst"])
@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_compression_is_detected_by_the_first_bytes(
    tmp_path: Path, name: str, compression: Literal["gzip", "zstd"]
) -> None:
    path, frame = tmp_path / name, pl.DataFrame(ROWS, schema=["label", "a", "b"], orient="row")
    frame.lazy().sink_csv(tmp_path / "any", compression=compression, check_extension=False)
    (tmp_path / "any").rename(path)
    assert rows_of(path) == ROWS
    source = build_source(DataConfig(paths=(str(path),), label="label"))
    assert [chunk.bytes_done for chunk in source.chunks()] == [None]  # what is unpacked says nothing of the file's size


@pytest.mark.parametrize("block_bytes", [3, 1 << 20])
@pytest.mark.parametrize("columns", [(), ("label", "a", "b")])
@pytest.mark.parametrize("data", [PLAIN, PLAIN.replace(b"x", b'"x"'), b"\xef\xbb\xbf" + PLAIN])
@pytest.mark.parametrize("packed", [False, True])
def test_lines_that_end_with_cr_alone_raise(
    tmp_path: Path, data: bytes, columns: tuple[str, ...], block_bytes: int, packed: bool
) -> None:
    data = data.replace(b"\n", b"\r")
    path = write(tmp_path / "cr.csv", gzip.compress(data) if packed else data)
    with pytest.raises(DataError, match=r"cr\.csv:1: lines end with CR alone; .*tr "):
        rows_of(path, block_bytes, columns=columns)


def test_a_long_file_of_lines_that_end_with_cr_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "cr.csv", b"label,a,b\r" + b"0,x,1\r" * 1_000_000 + b"\n")
    with pytest.raises(DataError, match=r"CR alone"):
        next(read_blocks(path, block_bytes=1 << 16))


def test_cr_inside_a_quoted_value_is_not_a_line_end(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b'0,"x\ry"\n')
    assert rows_of(path, columns=("label", "a")) == [("0", "x\ry")]
    path = write(tmp_path / "a.csv", b"label,a\n0,x\ry\n")
    assert rows_of(path) == [("0", "x\ry")]


def test_headerless_file_takes_the_given_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"0\tx\n1\ty\n")
    resolved = resolve_format(path, FileFormat(columns=("label", "a")))
    frame = next(iter(read_chunks(path, resolved, header=False))).frame
    assert frame.columns == ["label", "a"]
    assert frame.rows() == [("0", "x"), ("1", "y")]


def test_quoted_separators_and_line_breaks(tmp_path: Path) -> None:
    path = write(tmp_path / "q.csv", b'label,a\n0,"x,1"\n1,"two\nlines"\n0,"a ""word"""\n1,z\n')
    for block_bytes in (3, 1 << 20):
        assert rows_of(path, block_bytes) == [("0", "x,1"), ("1", "two\nlines"), ("0", 'a "word"'), ("1", "z")]
    chunk = list(read_chunks(path, resolve_format(path, FileFormat())))[-1]
    assert chunk.line_of is not None
    assert [chunk.line_of(row) for row in range(4)] == [2, 3, 5, 6]


def test_quotes_may_be_ordinary_characters(tmp_path: Path) -> None:
    path = write(tmp_path / "q.csv", b'label,a\n0,5" pipe\n')
    assert rows_of(path, quote="") == [("0", '5" pipe')]
    assert rows_of(path) == [("0", '5" pipe')]
    path = write(tmp_path / "q.csv", b'label,a\n0,"pipe" 5\n')
    with pytest.raises(DataError, match=r'q\.csv:2: .*quote = ""'):
        rows_of(path)


@pytest.mark.parametrize("block_bytes", [5, 1 << 20])
@pytest.mark.parametrize("bad", [b"1,y\n", b"1,y,2,3\n", b'"1",y\n'])
def test_ragged_row_is_named_by_line(tmp_path: Path, bad: bytes, block_bytes: int) -> None:
    path = write(tmp_path / "r.csv", b"label,a,b\n0,x,1\n\n" + bad + b"0,x,1\n")
    with pytest.raises(DataError, match=r"r\.csv:4: has \d columns, expected 3"):
        rows_of(path, block_bytes)


def test_latin1_and_non_utf8(tmp_path: Path) -> None:
    path = write(tmp_path / "l.csv", b"label,a\n0,x\n1,\xe9t\xe9\n")
    assert rows_of(path, encoding="latin-1")[1] == ("1", "été")
    with pytest.raises(DataError, match=r"l\.csv:3: contains a byte that is not UTF-8"):
        rows_of(path)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("empty.csv", b"", "empty.csv:1: the file is empty"),
        ("nul.csv", b"label,a\n0,x\n1,\0\n", "nul.csv:3: contains a NUL byte"),
        ("wide.csv", "label,a\n".encode("utf-16"), "UTF-16"),
        ("twice.csv", b"a,b,a\n1,2,3\n", "two columns are called 'a'"),
        ("cut.csv.gz", gzip.compress(PLAIN * 1000, mtime=0)[:-20], "truncated or damaged"),
        ("no.csv.gz", b"no gzip", "truncated or damaged"),
        ("no.parquet", b"no parquet", "not a readable Parquet"),
        ("mixed.csv", PLAIN.replace(b"\n", b"\r", 1), "mixed.csv:1: .* there is a CR inside the line"),
        ("zip.csv", b"PK\x03\x04\x14\0", "zip.csv: is a zip archive; unpack it"),
        ("xz.csv", b"\xfd7zXZ\0\0", "xz.csv: is compressed with xz"),
        ("table.csv", b"PAR1\x15\x04\x15", "table.csv: is a Parquet file"),
        ("open.csv", b'a,b\n1,"2\n', "open.csv:2"),
    ],
)
def test_damaged_files_get_one_clear_message(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        rows_of(write(tmp_path / name, data))


def test_parquet_keeps_types_and_rows(tmp_path: Path) -> None:
    frame = pl.DataFrame({"label": [0, 1], "a": ["x", None], "b": [0.5, 2.0]})
    frame.write_parquet(tmp_path / "a.parquet")
    assert rows_of(tmp_path / "a.parquet") == frame.rows()


def test_globs_are_sorted_by_name_and_must_match(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv"):
        write(tmp_path / name, PLAIN)
    assert [path.name for path in expand_paths([str(tmp_path / "*.csv")])] == ["a.csv", "b.csv"]
    with pytest.raises(DataError, match="no file matches"):
        expand_paths([str(tmp_path / "*.tsv")])
    with pytest.raises(DataError, match="no such file"):
        expand_paths([tmp_path / "c.csv"])
    with pytest.raises(DataError, match="is a folder"):
        expand_paths([tmp_path])


def test_blocks_contain_complete_lines_with_line_numbers(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\ntwo\nthree\nfour")
    blocks = list(read_blocks(path, block_bytes=5))
    assert b"".join(block.data for block in blocks) == b"one\ntwo\nthree\nfour"
    for block in blocks:
        assert b"one\ntwo\nthree\nfour".split(b"\n")[block.first_line - 1] == block.data.split(b"\n")[0]


def test_truncated_zstd_raises(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.zst"
    pl.DataFrame({"label": range(100_000), "a": range(100_000)}).lazy().sink_csv(path, compression="zstd")
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(DataError, match="zstd"):
        rows_of(path)


@pytest.mark.parametrize("kind", ["csv", "csv.zst", "parquet"])
@pytest.mark.parametrize("cell_bytes", [20, 1000])
def test_memory_mb_sets_the_size_of_a_chunk(tmp_path: Path, kind: str, cell_bytes: int) -> None:
    rows, path = 12_000_000 // (2 * cell_bytes), tmp_path / f"a.{kind}"
    text = pl.Series(range(rows)).cast(pl.String).str.zfill(cell_bytes)
    frame = pl.DataFrame({"label": pl.Series(range(rows)) % 2, "a": text, "b": text})
    frame.write_parquet(path) if kind == "parquet" else frame.lazy().sink_csv(
        path, compression="zstd" if kind.endswith("zst") else "uncompressed"
    )
    for memory_mb in (100, 200, 1000):
        config = DataConfig(paths=(str(path),), label="label", memory_mb=memory_mb)
        frames = [chunk.frame for chunk in build_source(config).chunks()]
        sizes = [part.estimated_size() for part in frames]
        assert max(sizes) < 1.2 * config.block_bytes
        assert max(sizes) > 0.5 * min(config.block_bytes, 12_000_000)
        assert pl.concat(frames)["b"].equals(text)


def test_zstd_lines_that_grow_longer_do_not_make_longer_chunks(tmp_path: Path) -> None:
    cells = ["x" * (10 if at < 1000 else 5000) for at in range(2000)]
    pl.DataFrame({"a": cells}).lazy().sink_csv(tmp_path / "a.csv.zst", compression="zstd")
    blocks = list(read_blocks(tmp_path / "a.csv.zst", block_bytes=100_000))
    assert max(len(block.data) for block in blocks) <= 105_001
    assert b"".join(block.data for block in blocks).split() == [b"a", *(cell.encode() for cell in cells)]


def test_brackets_in_a_file_name_are_not_a_glob(tmp_path: Path) -> None:
    for name, label in (("o[1].parquet", "1"), ("o1.parquet", "0")):
        pl.DataFrame({"label": [label], "a": ["x"]}).write_parquet(tmp_path / name)
    assert rows_of(tmp_path / "o[1].parquet") == [("1", "x")]
    (tmp_path / "o1.parquet").unlink()
    assert rows_of(tmp_path / "o[1].parquet") == [("1", "x")]


def test_an_open_quote_skips_only_its_own_line(tmp_path: Path) -> None:
    good = b"0,x\n1,y\n"
    path = write(tmp_path / "open.csv", b"label,a\n" + good + b'1,"open\n' + good + b'0,"q,r"\n' + good)
    resolved = resolve_format(path, FileFormat())
    chunks = list(read_chunks(path, resolved, block_bytes=1 << 20, bad_rows="skip"))
    rows = [row for chunk in chunks for row in chunk.frame.rows()]
    assert rows == [("0", "x"), ("1", "y")] * 2 + [("0", "q,r")] + [("0", "x"), ("1", "y")]
    assert [line for chunk in chunks for line, _ in chunk.skipped] == [4]
    assert [chunk.line(row) for chunk in chunks for row in range(len(chunk.frame))] == [2, 3, 5, 6, 7, 8, 9]
    with pytest.raises(DataError, match=r"open\.csv:4: "):
        rows_of(path)


def test_lines_of_a_broken_quoted_value_are_not_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "broken.csv", b'label,a\n0,"p\nq"x,1\n1,y\n')
    chunks = list(read_chunks(path, resolve_format(path, FileFormat()), bad_rows="skip"))
    assert [row for chunk in chunks for row in chunk.frame.rows()] == [("1", "y")]
    assert [line for chunk in chunks for line, _ in chunk.skipped] == [2, 3]
