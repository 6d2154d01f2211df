import math
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, strategies as st

from thresher.kernels import top_scores as module
from thresher.kernels.top_scores import kth_score, top_masks


class CountingTable:
    padding_id = None

    def __init__(self, scores):
        self.all_scores = scores
        self.shape = tuple(scores.shape)
        self.most_rows = 0

    def scores(self, start, stop):
        self.most_rows = max(self.most_rows, stop - start)
        return self.all_scores[start:stop].clone()


# few different values, so that ties are common
values = st.sampled_from([-math.inf, -1e30, -2.5, -0.0, 0.0, 1e-30, 1.0, 1.0000001, 3e38, math.inf])


@st.composite
def scored_tables(draw):
    shapes = draw(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=1, max_size=3))
    return [
        CountingTable(
            torch.tensor(draw(st.lists(values, min_size=n * d, max_size=n * d)), dtype=torch.float32).reshape(n, d)
        )
        for n, d in shapes
    ]


@given(scored_tables(), st.sampled_from([0, 1 << 22]), st.data())
def test_masks_and_kth_score_are_those_of_a_stable_sort(tables, sorted_entries, data):
    """Both by histograms, as for large tables, and by a partial sort."""
    flat = torch.cat([table.all_scores.flatten() for table in tables])
    k = data.draw(st.integers(1, flat.numel()))
    order = torch.sort(flat, descending=True, stable=True)
    expected = torch.zeros(flat.numel(), dtype=torch.bool)
    expected[order.indices[:k]] = True
    with patch.object(module, "_SORTED_ENTRIES", sorted_entries):
        assert torch.equal(torch.cat([mask.flatten() for mask in top_masks(tables, k)]), expected)
        assert kth_score(tables, k) == order.values[k - 1].item()


def test_scores_are_read_in_chunks(monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ENTRIES", 100)
    table = CountingTable(torch.randn(500, 7))
    mask = top_masks([table], 1234)[0]
    assert table.most_rows == 100 // 7
    assert int(mask.sum()) == 1234
    assert table.all_scores[mask].min() > table.all_scores[~mask].max()


def test_none_and_all_can_be_kept():
    table = CountingTable(torch.randn(4, 3))
    assert not top_masks([table], 0)[0].any()
    assert top_masks([table], 12)[0].all()


@pytest.mark.parametrize("k", [0, 13, -1])
def test_a_k_outside_the_scores_is_refused(k):
    with pytest.raises(ValueError, match=f"k is {k}"):
        kth_score([CountingTable(torch.randn(4, 3))], k)
