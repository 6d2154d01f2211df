"""Gradient rows of several processes, added up."""

import torch

from thresher.kernels.merged_rows import merge_rows


def test_rows_of_all_processes_are_added_in_their_order():
    torch.manual_seed(0)
    num_rows, counts = 50, [20, 0, 30, 1]
    ids, values = torch.zeros(4, num_rows, dtype=torch.int64), torch.randn(4, num_rows, 3)
    for part, count in zip(ids, counts, strict=True):
        part[:count] = torch.randperm(num_rows)[:count].sort().values
    expected = torch.zeros(num_rows, 3)
    for part, rows, count in zip(ids, values, counts, strict=True):
        expected[part[:count]] += rows[:count]
    looked_up = torch.cat([part[:count] for part, count in zip(ids, counts, strict=True)]).unique()
    for wanted in (slice(0, num_rows), slice(0, 20), slice(20, 20), slice(20, num_rows)):
        merged, rows = merge_rows(ids, values, counts, wanted)
        assert torch.equal(merged, looked_up[(looked_up >= wanted.start) & (looked_up < wanted.stop)])
        assert torch.equal(rows, expected[merged])
