"""Damaged and hostile files are refused; lookups in accepted files never read outside their arrays."""

import json
import struct
from contextlib import contextmanager, suppress
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from safetensors import safe_open
from safetensors.numpy import save, save_file

from thresher.compact.file import FORMAT, VERSION, load_table, save_table
from thresher.compact.layouts import Layout
from thresher.compact.table import CompactTable
from thresher.errors import FormatError, ThresherError


def some_tables():
    generator = np.random.default_rng(0)
    for num_features, density in ((40, 1.0), (40, 0.99), (60, 0.3), (300, 0.02), (70_000, 1e-5), (20_000, 1e-3)):
        mask = generator.random((num_features, 40)) < density
        values = generator.standard_normal(mask.shape)
        yield CompactTable.from_mask(mask, values)
        yield CompactTable.from_mask(mask, values, value_type="int4")
    full = generator.random((80, 40)) < 0.2
    full[::2] = True
    full[:, 3] = False
    yield CompactTable.from_mask(full, generator.standard_normal(full.shape), value_type="bf16")


TABLES = list(some_tables())


def file_of(table):
    metadata = {"format": FORMAT, "version": str(VERSION), "layout": json.dumps(asdict(table.layout))}
    return save({name: np.ascontiguousarray(array) for name, array in table.arrays.items()}, metadata)


FILES = [file_of(table) for table in TABLES]


@contextmanager
def refusing():
    """Anything may be refused, but only with a FormatError."""
    with suppress(FormatError):
        yield


def read_all(path, verify):
    """Use every part of a table; the kernel would crash here if a check were missing."""
    table = CompactTable.load(path, verify=verify)
    table.lookup(np.arange(-5, min(table.num_features, 2000) + 5), out_of_range="zeros")
    if table.num_features * table.embedding_dim < 10**7:
        table.to_dense()


def test_the_sample_tables_cover_every_layout():
    layouts = [table.layout for table in TABLES]
    assert {layout.row_index for layout in layouts} == {"all", "bitmap", "list8", "list16"}
    assert {layout.content for layout in layouts} == {"full", "masks", "columns"}
    assert any(layout.num_full_rows for layout in layouts)
    assert any(layout.drops_columns for layout in layouts)


@pytest.mark.parametrize("at", range(len(TABLES)))
def test_any_flipped_bit_is_detected(at, tmp_path):
    path = tmp_path / "table.safetensors"
    TABLES[at].save(path)
    whole = path.read_bytes()
    generator = np.random.default_rng(at)
    data_start = 8 + struct.unpack("<Q", whole[:8])[0]
    for place in generator.integers(data_start, len(whole), 30):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << generator.integers(8))]) + whole[place + 1 :])
        with pytest.raises(FormatError, match="checksum"):
            CompactTable.load(path)


@pytest.mark.parametrize("at", range(len(TABLES)))
def test_a_truncated_file_is_refused(at, tmp_path):
    path = tmp_path / "table.safetensors"
    TABLES[at].save(path)
    whole = path.read_bytes()
    for length in {0, 4, 8, 60, len(whole) // 2, len(whole) - 1}:
        path.write_bytes(whole[:length])
        with pytest.raises(FormatError, match=r"table\.safetensors"):
            CompactTable.load(path)


@settings(max_examples=300)
@given(st.sampled_from(range(len(TABLES))), st.data())
def test_changed_bytes_without_the_checksum_never_break_a_lookup(tmp_path_factory, at, data):
    """With the checksum off, as an attacker would recompute it, only the structural checks protect."""
    path = tmp_path_factory.getbasetemp() / "table.safetensors"
    content = bytearray(FILES[at])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with refusing():
        read_all(path, verify=False)


@settings(max_examples=300)
@given(st.sampled_from(range(len(TABLES))), st.data())
def test_a_wrong_layout_is_refused_or_harmless(tmp_path_factory, at, data):
    table = TABLES[at]
    mapping = asdict(table.layout)
    for name in data.draw(st.lists(st.sampled_from(sorted(mapping)), min_size=1, max_size=2)):
        small, huge = st.integers(-2, 100), st.sampled_from([2**31, 2**32 - 1, 2**62, 10**30, 1.5, None, "all", True])
        near = st.integers(-2, 2).map(lambda step, now=mapping[name]: now + step if isinstance(now, int) else now)
        mapping[name] = data.draw(st.one_of(small, huge, near))
    path = tmp_path_factory.getbasetemp() / "table.safetensors"
    write(path, {"format": FORMAT, "version": str(VERSION), "layout": json.dumps(mapping)}, table.arrays)
    with refusing():
        read_all(path, verify=False)


def write(path, metadata, arrays):
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path, metadata)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"format": "another"}, "unsupported table .*'another'"),
        ({"version": "1"}, rf"version '1'. This release reads .* version {VERSION}"),
        ({"layout": "{}"}, "a layout must have the keys"),
        ({"layout": "[" * 100_000}, "invalid compact table"),
        ({"sha256": "0"}, "checksum"),
    ],
)
def test_other_formats_and_versions_are_refused(tmp_path, metadata, message):
    table = TABLES[0]
    good = {"format": FORMAT, "version": str(VERSION), "layout": json.dumps(asdict(table.layout))}
    write(tmp_path / "table.safetensors", good | metadata, table.arrays)
    with pytest.raises(FormatError, match=message):
        load_table(tmp_path / "table.safetensors", verify="sha256" in metadata)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 2**62]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [2**70, 2**70 + 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "X9", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1]},
        {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]},
        [],
        None,
    ],
)
def test_an_invalid_header_is_refused(tmp_path, entry):
    header = json.dumps({"values": entry}).encode()
    (tmp_path / "table.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    with pytest.raises(FormatError, match="damaged header"):
        load_table(tmp_path / "table.safetensors")


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "table.safetensors"
    TABLES[0].save(path)
    before = path.read_bytes()
    with pytest.raises(ThresherError, match="cannot write"):
        save_table(Layout(**asdict(TABLES[0].layout)), {"values": object()}, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["table.safetensors"]


@pytest.mark.parametrize("table", TABLES[:2])
def test_equal_tables_are_equal_files(table, tmp_path):
    paths = [tmp_path / f"{at}.safetensors" for at in range(6)]
    for path in paths:
        save_table(table.layout, table.arrays, path)
    assert len({path.read_bytes() for path in paths}) == 1
    assert np.array_equal(CompactTable.load(paths[0]).to_dense(), table.to_dense())
    assert set(safe_open(paths[0], framework="np").keys()) == set(table.arrays)  # for other readers, too
