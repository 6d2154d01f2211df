import errno
import os

import pytest
import torch
from torch import nn

from thresher._internal.mapped_tensors import LARGE_BYTES, copy_of, mapped_tables, new_zeros
from thresher.errors import WriteError
from thresher.training.row_adam import RowAdam


def test_new_tables_are_zero_and_writable():
    for shape in ((3, 2), (LARGE_BYTES // 4 // 8, 8)):
        table = new_zeros(*shape)
        assert table.shape == shape
        assert not table.any()
        table[-1, -1] = 1.0
        assert table.sum() == 1.0


def test_only_large_tables_are_mapped_and_leave_no_file(tmp_path):
    with mapped_tables(tmp_path / "tables", over_bytes=1000):
        small = new_zeros(10, 10)
        assert not (tmp_path / "tables").exists()
        large = new_zeros(100, 10, dtype=torch.int32)
    large[7] = torch.arange(10, dtype=torch.int32)
    assert large.sum() == 45
    assert small.shape == (10, 10)
    assert list((tmp_path / "tables").iterdir()) == []


def test_copies_are_independent(tmp_path):
    values = torch.randn(LARGE_BYTES // 4 // 16, 16)
    with mapped_tables(tmp_path, over_bytes=1000):
        copies = [copy_of(values), copy_of(values[:3])]
    for copy, original in zip(copies, (values, values[:3]), strict=True):
        assert torch.equal(copy, original)
        copy.add_(1)
        assert not torch.equal(copy, original)


def test_training_with_mapped_state_takes_the_same_steps(tmp_path):
    results = []
    for over_bytes in (1, 1 << 40):
        torch.manual_seed(0)
        table = nn.Parameter(torch.randn(40, 8))
        with mapped_tables(tmp_path, over_bytes=over_bytes):
            optimizer = RowAdam([table], lr=0.1, weight_decay=0.01)
            for _ in range(5):
                ids = torch.randint(40, (6,)).unique()
                table.grad = torch.sparse_coo_tensor(
                    ids[None], torch.randn(len(ids), 8), (40, 8), check_invariants=True
                )
                optimizer.step()
        results.append(table.detach())
    assert torch.equal(*results)


def test_a_table_on_the_meta_device_uses_no_memory(tmp_path):
    with torch.device("meta"), mapped_tables(tmp_path / "tables", over_bytes=1000):
        table = new_zeros(10**9, 64)
    assert table.is_meta
    assert not (tmp_path / "tables").exists()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_space_is_reserved_before_a_table_is_mapped(tmp_path, monkeypatch):
    with mapped_tables(tmp_path / "tables", over_bytes=1000):
        assert not new_zeros(1000, 64).any()

        def full(descriptor, first, num_bytes):
            assert num_bytes == 4 * 64 * 10**6
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(WriteError, match=r"cannot reserve 256,000,000 bytes in .*tables: No space left"):
            new_zeros(10**6, 64)
    assert not list((tmp_path / "tables").iterdir())
