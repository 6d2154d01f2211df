"""Hostile files of method tables are refused with a FormatError, or are safe to look up in.

The checksum is recomputed after every change, as an attacker would do, so only the checks of the form protect.
"""

import json
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors.numpy import save_file
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from thresher.baselines.frequent import FrequentConfig, FrequentEmbedding
from thresher.baselines.hashing import (
    DoubleHashConfig,
    DoubleHashEmbedding,
    HashConfig,
    HashEmbedding,
    QuotientRemainderConfig,
    QuotientRemainderEmbedding,
)
from thresher.baselines.mgqe import MgqeConfig, MgqeEmbedding
from thresher.compact.file import checksum, map_safetensors
from thresher.compact.method_table import MethodTable, load_any_table
from thresher.embeddings.feature_groups import FeatureRuns, MixedDimensionEmbedding
from thresher.embeddings.stored_form import _kinds
from thresher.errors import FormatError

SIZES = (3, 9)
COUNTS = (0, 9, 8, 0, 30, 20, 7, 6, 5, 4, 3, 2)


def some_embeddings():
    torch.manual_seed(0)
    runs = FeatureRuns.of(np.array([0, 1, 1, 0, 2, 2, 2, 1, 1, 0, 3, 3]), 4)
    mgqe = {"embedding_dim": 4, "num_subspaces": 2, "frequent_share": 0.25}
    return {
        "hash": HashEmbedding(SIZES, HashConfig(embedding_dim=4, num_buckets=8)),
        "double-hash": DoubleHashEmbedding(
            SIZES, DoubleHashConfig(embedding_dim=4, num_buckets=8, frequent_share=0.25), feature_counts=COUNTS
        ),
        "quotient-remainder": QuotientRemainderEmbedding(
            SIZES, QuotientRemainderConfig(embedding_dim=4, num_buckets=6)
        ),
        "frequent": FrequentEmbedding(SIZES, FrequentConfig(embedding_dim=4, num_buckets=5), feature_counts=COUNTS),
        "mixed": MixedDimensionEmbedding(SIZES, 4, runs, (4, 2, 2, 0), share_projections=True),
        "mixed-own-projections": MixedDimensionEmbedding(SIZES, 4, runs, (4, 2, 1, 0)),
        "mixed-nothing": MixedDimensionEmbedding(SIZES, 4, FeatureRuns.of(np.zeros(12, int), 1), (0,)),
        "mgqe": MgqeEmbedding(SIZES, MgqeConfig(num_centroids=5, num_rare_centroids=3, **mgqe), feature_counts=COUNTS),
        "mgqe-one-rare": MgqeEmbedding(
            SIZES, MgqeConfig(num_centroids=4, num_rare_centroids=1, **mgqe), feature_counts=COUNTS
        ),
    }


EMBEDDINGS = some_embeddings()
NAMES = list(EMBEDDINGS)
HASHED = ["hash", "double-hash", "quotient-remainder"]
IN_RUNS = ["double-hash", "mixed", "mixed-own-projections", "mgqe", "mgqe-one-rare"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("method-tables")
    for name, embedding in EMBEDDINGS.items():
        MethodTable.from_embedding(embedding).save(folder / f"{name}.safetensors")
    return folder


class ChangedTable:
    """A saved table to change and to write again with a correct checksum."""

    def __init__(self, folder: Path, name: str) -> None:
        self.metadata, arrays = map_safetensors(folder / f"{name}.safetensors")
        self.arrays = {key: array.copy() for key, array in arrays.items()}
        self.method = json.loads(self.metadata["method"])
        self.path = folder / "changed.safetensors"

    @property
    def form(self):
        return self.method["metadata"]

    def write(self) -> Path:
        method, sha256 = json.dumps(self.method), checksum(self.arrays)
        save_file(self.arrays, self.path, {**self.metadata, "method": method, "sha256": sha256})
        return self.path


def use(path):
    """Look up inside and outside of the loaded table."""
    table = load_any_table(path)
    ids = torch.arange(-3, min(table.num_features, 2000) + 3)
    assert table.lookup(ids, out_of_range="zeros").shape == (len(ids), table.embedding_dim)
    table.lookup(torch.tensor([table.num_features - 1]))
    assert table.num_parameters >= 0


def refused(changed, message):
    with pytest.raises(FormatError, match=f"changed.safetensors.*{message}"):
        use(changed.write())


def test_every_kind_of_stored_form_is_here(files):
    kinds = {embedding.to_stored().kind for embedding in EMBEDDINGS.values()}
    assert kinds == {kind for kind, cls in _kinds.items() if cls.__module__.startswith("thresher.")}
    for name, embedding in EMBEDDINGS.items():
        loaded = load_any_table(ChangedTable(files, name).write())
        assert torch.equal(loaded.lookup(torch.arange(12)), embedding(torch.arange(12)))


@pytest.mark.parametrize("sizes", [[3, 10**15], [-3, 15], [3, 9.0], [3, True], [], [0], "12", None, [[3], 9]])
@pytest.mark.parametrize("name", NAMES)
def test_impossible_fields_are_refused(files, name, sizes):
    changed = ChangedTable(files, name)
    changed.method["field_sizes"] = sizes
    refused(changed, "")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("hash", "mgqe-one-rare")])
def test_more_features_than_rows_are_refused(files, name):
    changed = ChangedTable(files, name)
    changed.method["field_sizes"] = [3, 30]
    refused(changed, "group_sizes|expected shape|settings")


@pytest.mark.parametrize("name", IN_RUNS)
@pytest.mark.parametrize(
    ("array", "at", "value", "message"),
    [
        ("run_starts", 0, 1, "run_starts must start with 0"),
        ("run_starts", 1, 0, "run_starts must start with 0"),
        ("run_starts", -1, 12, "run_starts must start with 0, ascend and be below 12"),
        ("run_groups", 1, 77, "run_groups must be between 0 and"),
        ("run_rows", -1, 1_000_000, "run_rows must number"),
        ("run_rows", -1, -5, "run_rows must number"),
        ("run_rows", 0, 1, "run_rows must number"),
    ],
)
def test_wrong_runs_are_refused(files, name, array, at, value, message):
    changed = ChangedTable(files, name)
    changed.arrays[array][at] = value
    refused(changed, message)


@pytest.mark.parametrize("name", IN_RUNS)
def test_runs_of_another_type_or_length_are_refused(files, name):
    for array in ("run_starts", "run_groups", "run_rows"):
        changed = ChangedTable(files, name)
        changed.arrays[array] = changed.arrays[array].astype(np.int64)
        refused(changed, "must have .* values of type")
        changed.arrays[array] = changed.arrays[array][:0].astype(np.int32)
        refused(changed, "must")


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("hash", "rows.num_rows"),
        ("hash", "rows.first_row"),
        ("hash", "rows.first_id"),
        ("quotient-remainder", "remainders.num_rows"),
        ("quotient-remainder", "quotients.first_row"),
    ],
)
@pytest.mark.parametrize("value", [-1, 0, 99])
def test_wrong_rows_of_fields_are_refused(files, name, array, value):
    changed = ChangedTable(files, name)
    changed.arrays[array][1] = value
    refused(changed, f"{array} does not match the settings and the fields")


def test_codes_without_a_centroid_are_refused(files):
    for codes in ("frequent_codes", "rare_codes"):
        changed = ChangedTable(files, "mgqe")
        changed.form["bits"] = [3, 2]
        changed.arrays["centroids"] = changed.arrays["centroids"][:, :5]
        changed.arrays[codes][:] = 255
        if codes == "rare_codes":  # 2 bits name 3 at most, which is one of the five
            use(changed.write())
        else:
            refused(changed, "beyond the 5 stored")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("bits", [9, 2], "bits are not those"),
        ("bits", [3, 4], "bits are not those"),
        ("bits", [3], "bits are not those"),
        ("bits", "32", "list of integers"),
        ("num_parameters", 10**12, "num_parameters does not match"),
        ("num_parameters", -1, "must be an integer"),
    ],
)
def test_wrong_metadata_of_codes_is_refused(files, key, value, message):
    changed = ChangedTable(files, "mgqe")
    changed.form[key] = value
    refused(changed, message)


class Allocations(TorchDispatchMode):
    """The most elements any operation made outside the meta device."""

    most = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.device.type != "meta":
                self.most = max(self.most, leaf.numel())
        return result


@pytest.mark.parametrize(
    ("name", "claims"),
    [(name, {"config": {"embedding_dim": 8_000_000}}) for name in HASHED]
    + [("double-hash", {"config": {"num_hashes": 10**12}})]
    + [(name, {"embedding_dim": 8_000_000}) for name in ("mixed", "mixed-own-projections", "mixed-nothing")]
    + [("mixed", {"embedding_dim": 8_000_000, "sizes": [8_000_000, 2, 2, 0]})],
)
def test_a_small_file_cannot_claim_much_memory(files, name, claims):
    changed = ChangedTable(files, name)
    for key, claim in claims.items():
        changed.form[key] = {**changed.form[key], **claim} if isinstance(claim, dict) else claim
    with Allocations() as allocations:
        refused(changed, "expected shape|must be at most")
    assert allocations.most < 1000


def test_settings_of_another_method_and_unknown_kinds_are_format_errors(files):
    changed = ChangedTable(files, "hash")
    changed.form["config"] = {"method": "mde"}
    refused(changed, "expected one of")
    changed = ChangedTable(files, "hash")
    changed.method["kind"] = "novel"
    refused(changed, "not installed")
    changed.method = "[" * 3
    refused(changed, "")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(-2, 100) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300)
@given(st.sampled_from(NAMES), st.data())
def test_changed_metadata_is_refused_or_harmless(files, name, data):
    changed = ChangedTable(files, name)
    places = [
        changed.method,
        changed.form,
        *(value for value in changed.form.values() if isinstance(value, dict)),
    ]
    place = data.draw(st.sampled_from(places))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(anything)
    with suppress(FormatError):
        use(changed.write())


@settings(max_examples=400)
@given(st.sampled_from(NAMES), st.data())
def test_changed_numbers_are_refused_or_harmless(files, name, data):
    changed = ChangedTable(files, name)
    for _ in range(data.draw(st.integers(1, 3))):
        array = changed.arrays[data.draw(st.sampled_from(sorted(changed.arrays)))]
        if array.size:
            flat = array.reshape(-1).view(np.uint8)
            flat[data.draw(st.integers(0, len(flat) - 1))] = data.draw(st.integers(0, 255))
    with suppress(FormatError):
        use(changed.write())


@settings(max_examples=300)
@given(st.sampled_from(NAMES), st.data())
def test_arrays_of_other_shapes_and_types_are_refused_or_harmless(files, name, data):
    changed = ChangedTable(files, name)
    key = data.draw(st.sampled_from(sorted(changed.arrays)))
    array = changed.arrays[key]
    match data.draw(st.sampled_from(["drop", "add", "cut", "grow", "type", "flatten"])):
        case "drop":
            del changed.arrays[key]
        case "add":
            changed.arrays[f"{key}0"] = array
        case "cut":
            changed.arrays[key] = np.ascontiguousarray(array[:-1])
        case "grow":
            changed.arrays[key] = np.concatenate([array, array])
        case "type":
            dtype = data.draw(st.sampled_from(["f8", "f4", "f2", "i8", "i4", "u1", "?", "u8"]))
            with np.errstate(all="ignore"):
                changed.arrays[key] = array.astype(dtype)
        case "flatten":
            changed.arrays[key] = array.reshape(-1)
    with suppress(FormatError):
        use(changed.write())
