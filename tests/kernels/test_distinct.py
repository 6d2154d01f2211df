import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from thresher.errors import DataError
from thresher.kernels import distinct as module
from thresher.kernels.distinct import DistinctIds, find_distinct, is_ascending, mark_
from thresher.kernels.rows import lookup_rows


@st.composite
def batches(draw):
    num_features = draw(st.integers(1, 200))
    shape = draw(st.sampled_from([(0,), (0, 3), (1,), (1, 1), (7,), (5, 4), (2, 3, 2)]))
    size = torch.Size(shape).numel()
    ids = draw(st.lists(st.integers(0, num_features - 1), min_size=size, max_size=size))
    dtype = draw(st.sampled_from([torch.int32, torch.int64]))
    return torch.tensor(ids, dtype=dtype).reshape(shape), num_features


@given(batches())
def test_the_kernel_and_its_twin_find_the_same(batch):
    ids, num_features = batch
    ours, twin = module._find_by_kernel(ids, num_features), module._find_by_torch(ids, num_features)
    assert torch.equal(ours.ids, twin.ids)
    assert ours.places.shape == ids.shape
    assert torch.equal(ours.places.long(), twin.places.long())


@given(batches())
def test_distinct_ids_ascend_and_reproduce_the_batch(batch):
    ids, num_features = batch
    found = find_distinct(ids, num_features)
    assert torch.equal(found.ids[found.places.long()], ids.long())
    assert bool((found.ids.diff() > 0).all())


@given(batches())
def test_occurrences_list_every_position_of_each_id(batch):
    ids, num_features = batch
    found = find_distinct(ids, num_features)
    starts, positions = found.occurrences
    flat = ids.flatten()
    for u, id_ in enumerate(found.ids.tolist()):
        assert positions[starts[u] : starts[u + 1]].tolist() == (flat == id_).nonzero().flatten().tolist()


@given(batches())
def test_occurrences_of_kernel_and_twin_are_equal(batch):
    ids, num_features = batch
    found = module._find_by_torch(ids, num_features)
    twin = DistinctIds(found.ids, found.places.to(torch.int16), num_features)  # int16 runs on the twin
    assert all(torch.equal(a, b) for a, b in zip(found.occurrences, twin.occurrences, strict=True))


@given(st.lists(st.integers(0, 9), max_size=4))
def test_ids_ascend_when_they_are_sorted_and_distinct(ids):
    for dtype in (torch.int64, torch.int16):  # the kernel, the twin
        assert is_ascending(torch.tensor(ids, dtype=dtype)) == (ids == sorted(set(ids)))


def test_marking_sets_only_the_flags_of_the_ids():
    for ids in (torch.tensor([1, 3]), torch.tensor([[1, 0], [3, 0]])[:, 0]):  # the kernel; strided, so its twin
        flags = torch.tensor([True, False, False, False, False])
        mark_(flags, ids)
        assert flags.tolist() == [True, True, False, True, False]


@pytest.mark.parametrize("find", [module._find_by_kernel, module._find_by_torch])
@pytest.mark.parametrize("bad", [-1, 10, 2**31 - 1])
def test_an_id_outside_the_table_is_refused(find, bad):
    with pytest.raises(DataError, match=f"^id {bad} is outside a table of 10 rows"):
        find(torch.tensor([[3, bad]], dtype=torch.int32), 10)


def test_the_result_is_cached_until_the_batch_changes():
    ids = torch.tensor([[1, 2], [2, 1]], dtype=torch.int32)
    first = find_distinct(ids, 5)
    assert find_distinct(ids, 5) is first
    assert find_distinct(ids, 6) is not first
    ids[0, 0] = 4
    assert find_distinct(ids, 5).ids.tolist() == [1, 2, 4]


def test_a_refilled_buffer_is_a_new_batch():
    buffer = np.array([1, 2, 3])
    ids = torch.from_numpy(buffer)
    assert find_distinct(ids, 10).ids.tolist() == [1, 2, 3]
    buffer[:] = [7, 8, 7]
    assert find_distinct(ids, 10).ids.tolist() == [7, 8]
    ids.data.copy_(torch.tensor([4, 4, 5]))
    assert find_distinct(ids, 10).ids.tolist() == [4, 5]
    assert not vars(ids)  # no attribute is set on the tensor


def test_results_of_inference_mode_are_not_cached_for_training():
    ids, weight = torch.tensor([1, 2, 1]), torch.ones(4, 2, requires_grad=True)
    with torch.inference_mode():
        find_distinct(ids, 4)
    assert not find_distinct(ids, 4).ids.is_inference()
    lookup_rows(weight, find_distinct(ids, 4)).sum().backward()
