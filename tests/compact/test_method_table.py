import copy
import sys
from pathlib import Path

import pytest
import torch

from thresher.compact.method_table import MethodTable, load_any_table
from thresher.embeddings.method_registry import build_embedding, embedding_config
from thresher.errors import FormatError, OutsideTableError

SIZES = (3, 9)
COUNTS = (0, 9, 8, 0, 30, 20, 7, 6, 5, 4, 3, 2)
METHODS = ("hash", "double-hash", "quotient-remainder", "mde", "mgqe")


def embedding_of(method):
    torch.manual_seed(0)
    return build_embedding(SIZES, embedding_config(method), feature_counts=COUNTS)


@pytest.fixture(params=METHODS)
def table(request):
    return MethodTable.from_embedding(embedding_of(request.param))


@pytest.mark.parametrize("id", [-1, 12, 100, -(2**40), 2**40])
def test_ids_outside_the_table_raise_or_give_zeros(table, id):
    ids = torch.tensor([[0, id], [11, 3]])
    with pytest.raises(OutsideTableError, match=f"id {id} is outside a table of 12 rows"):
        table.lookup(ids)
    vectors = table.lookup(ids, out_of_range="zeros")
    inside = table.lookup(torch.tensor([0, 11, 3]))
    assert torch.equal(vectors[0, 1], torch.zeros(64))
    torch.testing.assert_close(vectors[[0, 1, 1], [0, 0, 1]], inside)
    assert inside.abs().sum(1).min() > 0
    assert table.lookup(ids[:0]).shape == (0, 2, 64)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/maps")
def test_a_loaded_table_is_read_from_the_mapped_file(table, tmp_path):
    table.save(tmp_path / "table.safetensors")
    before = (tmp_path / "table.safetensors").read_bytes()
    loaded = load_any_table(tmp_path / "table.safetensors")
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    ours = [line[0].split("-") for line in maps if line[-1] == str(tmp_path / "table.safetensors")]
    parts = {**dict(loaded._embedding.named_parameters()), **dict(loaded._embedding.named_buffers())}
    for name in loaded.form.tensors:
        address = parts[name].data_ptr()
        assert not parts[name].numel() or any(int(first, 16) <= address < int(last, 16) for first, last in ours)
    next(iter(loaded.form.tensors.values())).add_(1)  # torch may write to its memory, but not to the file
    assert (tmp_path / "table.safetensors").read_bytes() == before


def test_a_table_is_a_copy_of_its_embedding():
    embedding = embedding_of("hash")
    table = MethodTable.from_embedding(embedding)
    before = table.lookup(torch.arange(12))
    with torch.no_grad():
        embedding.weight.zero_()
    assert torch.equal(table.lookup(torch.arange(12)), before)
    assert torch.equal(copy.deepcopy(table).lookup(torch.arange(12)), before)


def test_loading_draws_no_random_numbers(table, tmp_path):
    table.save(tmp_path / "table.safetensors")
    state = torch.random.get_rng_state()
    load_any_table(tmp_path / "table.safetensors")
    assert torch.equal(torch.random.get_rng_state(), state)


def test_verify_compares_the_checksum(table, tmp_path):
    path = tmp_path / "table.safetensors"
    floating = [name for name, tensor in table.form.tensors.items() if tensor.is_floating_point()]
    table.form.tensors[floating[0]].view(-1)[0] = 1.0
    table.save(path)
    content = bytearray(path.read_bytes())
    at = content.rindex(b"\x00\x00\x80\x3f")
    content[at] = 1
    path.write_bytes(content)
    with pytest.raises(FormatError, match="checksum"):
        load_any_table(path)
    assert load_any_table(path, verify=False).shape == table.shape


def test_equal_tables_are_equal_files(table, tmp_path):
    paths = [tmp_path / f"{at}.safetensors" for at in range(6)]
    for path in paths:
        table.save(path)
    assert len({path.read_bytes() for path in paths}) == 1
