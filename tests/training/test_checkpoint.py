import json
import os
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from training_toys import toy_model, toy_sources

from thresher._internal.mapped_tensors import tensor_state
from thresher.errors import FormatError, ThresherError
from thresher.training.checkpoint import (
    Checkpoint,
    History,
    capture_rng_state,
    derive_seed,
    isolated_rng,
    pack_optimizer,
    read_history,
    restore_rng_state,
    seed_all,
    unpack_model_,
    unpack_optimizer_,
)
from thresher.training.epoch import train_epoch
from thresher.training.optimizers import OptimizerConfig, build_optimizer


def test_tensors_and_metadata_are_restored_exactly(tmp_path):
    shared = torch.arange(6.0)
    tensors = {
        "float": torch.randn(3, 2),
        "transposed": torch.randn(3, 2).T,
        "bool": torch.tensor([True, False]),
        "int": torch.arange(5),
        "half": torch.randn(3).bfloat16(),
        "scalar": torch.tensor(3.0),
        "empty": torch.empty(0, 4),
        "shared": shared,
        "shared_too": shared,
        "view": shared[2:],
    }
    metadata = {"epoch": 3, "nested": {"x": [0.1, None, "ü"]}}
    Checkpoint(tensors, metadata).save(tmp_path / "new" / "c.safetensors")
    loaded = Checkpoint.load(tmp_path / "new" / "c.safetensors")
    assert loaded.metadata == metadata
    assert loaded.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded.tensors[name].dtype == tensor.dtype
        assert torch.equal(loaded.tensors[name], tensor)
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["c.safetensors"]


def test_a_loaded_checkpoint_is_memory_mapped_and_unpacked_tensors_are_copies(tmp_path):
    weight = nn.Parameter(torch.ones(1000, 8))
    optimizer = torch.optim.Adam([weight])
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    checkpoint = pack_optimizer(optimizer)
    checkpoint.add("twin", Checkpoint({"exp_avg": optimizer.state[weight]["exp_avg"]}))
    checkpoint.save(tmp_path / "c.safetensors")

    class NoCopies(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            assert function not in (torch.ops.aten.clone.default, torch.ops.aten.copy_.default)
            return function(*args, **(kwargs or {}))

    with NoCopies():
        loaded = Checkpoint.load(tmp_path / "c.safetensors")
    expected = optimizer.state[weight]
    unpack_optimizer_(loaded, optimizer)
    for key, tensor in loaded.part("0").tensors.items():
        assert torch.equal(tensor, expected[key])
        tensor.zero_()
        assert torch.equal(optimizer.state[weight][key], expected[key])
    again = Checkpoint.load(tmp_path / "c.safetensors")
    assert torch.equal(again.tensors["twin/exp_avg"], expected["exp_avg"])  # the file is not changed


def test_parts_keep_names_apart():
    checkpoint = Checkpoint()
    checkpoint.add("a", Checkpoint({"x": torch.zeros(1)}, {"step": 1}))
    checkpoint.add("a/b", Checkpoint({"x": torch.ones(1)}))
    assert set(checkpoint.part("a").tensors) == {"x", "b/x"}
    assert checkpoint.part("a").metadata == {"step": 1}
    assert checkpoint.part("a/b").tensors["x"].item() == 1


@pytest.mark.parametrize("damage", ["cut", "empty", "header", "data", "text"])
def test_damage_is_an_error_with_a_remedy(tmp_path, damage):
    path = tmp_path / "c.safetensors"
    Checkpoint({"x": torch.zeros(100)}, {"epoch": 1}).save(path)
    whole = path.read_bytes()
    damaged = {
        "cut": whole[:-10],
        "empty": b"",
        "header": whole[:3] + b"\xff" + whole[4:],
        "data": whole[:-10] + b"\x01" + whole[-9:],
        "text": b"no checkpoint at all",
    }
    path.write_bytes(damaged[damage])
    with pytest.raises(FormatError, match="Delete it to start again"):
        Checkpoint.load(path)


def test_other_files_and_later_versions_are_refused(tmp_path, monkeypatch):
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(FormatError, match="not a Thresher checkpoint"):
        Checkpoint.load(tmp_path / "other.safetensors")
    with pytest.raises(FormatError, match="does not exist"):
        Checkpoint.load(tmp_path / "none.safetensors")
    monkeypatch.setattr("thresher.training.checkpoint.VERSION", 9)
    Checkpoint().save(tmp_path / "later.safetensors")
    monkeypatch.undo()
    with pytest.raises(FormatError, match="format version 9; this release reads up to 2"):
        Checkpoint.load(tmp_path / "later.safetensors")


def test_a_failed_write_leaves_the_old_checkpoint_whole(tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    Checkpoint({"x": torch.zeros(1)}).save(path)

    def full_disk(tensors, target, metadata):
        target.write_bytes(b"half")
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("thresher.training.checkpoint.save_file", full_disk)
    with pytest.raises(ThresherError, match=r"cannot write .*c.safetensors: No space left on device"):
        Checkpoint({"x": torch.ones(1)}).save(path)
    assert Checkpoint.load(path).tensors["x"].item() == 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.safetensors"]


def test_state_that_is_not_a_tensor_is_refused(tmp_path):
    with pytest.raises(ThresherError, match="'m/x' is a list"):
        Checkpoint({"m/x": [1]}).save(tmp_path / "c.safetensors")


@pytest.mark.parametrize("optimizer_class", ["ours", torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
def test_a_training_resumes_exactly(tmp_path, optimizer_class):
    train, _ = toy_sources()
    path = tmp_path / "c.safetensors"

    def build():
        model = toy_model()
        if optimizer_class == "ours":
            return model, build_optimizer(model, OptimizerConfig())
        momentum = {} if optimizer_class is torch.optim.Adam else {"momentum": 0.9}
        return model, optimizer_class(model.parameters(), lr=0.01, **momentum)

    with isolated_rng():
        seed_all(1)
        model, optimizer = build()
        train_epoch(model, train, optimizer, 1)
        checkpoint = Checkpoint()
        checkpoint.add("model", Checkpoint(tensor_state(model)))
        checkpoint.add("optimizer", pack_optimizer(optimizer))
        checkpoint.add("rng", Checkpoint(capture_rng_state()))
        checkpoint.save(path)
        expected_loss = train_epoch(model, train, optimizer, 2)

        seed_all(2)
        resumed, resumed_optimizer = build()
        loaded = Checkpoint.load(path)
        unpack_model_(loaded.part("model"), resumed)
        unpack_optimizer_(loaded.part("optimizer"), resumed_optimizer)
        restore_rng_state(loaded.part("rng").tensors)
        assert train_epoch(resumed, train, resumed_optimizer, 2) == expected_loss
    for name, tensor in model.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


def test_integer_state_and_group_settings_of_an_optimizer_survive(tmp_path):
    class Lazy(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {"lr": 1.0, "betas": (0.9, 0.99)})

    weight = nn.Parameter(torch.zeros(3))
    first, second = Lazy([weight]), Lazy([weight])
    first.param_groups[0]["lr"] = 0.25
    first.state[weight] = {"last_step": torch.tensor([2**40, 1, 2]), "count": 5}
    pack_optimizer(first).save(tmp_path / "c.safetensors")
    unpack_optimizer_(Checkpoint.load(tmp_path / "c.safetensors"), second)
    assert second.param_groups[0]["lr"] == 0.25
    assert second.param_groups[0]["betas"] == (0.9, 0.99)
    assert second.state[weight]["last_step"].tolist() == [2**40, 1, 2]
    assert second.state[weight]["count"] == 5


def test_another_model_is_refused():
    with pytest.raises(FormatError, match="belongs to another model"):
        unpack_model_(Checkpoint(tensor_state(nn.Linear(2, 1))), nn.Linear(3, 1))
    packed = pack_optimizer(torch.optim.SGD(nn.Linear(2, 1).parameters()))
    with pytest.raises(FormatError, match="other parameters"):
        unpack_optimizer_(packed, torch.optim.SGD(nn.Linear(3, 1).parameters()))


def test_records_are_lines_and_come_back(tmp_path):
    history = History(tmp_path / "history.jsonl")
    for epoch in (1, 2):
        history.append({"epoch": epoch, "train_loss": 0.1 * epoch})
    assert [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()] == history.records
    assert read_history(tmp_path / "history.jsonl") == history.records


def test_an_epoch_is_never_written_twice(tmp_path):
    history = History(tmp_path / "history.jsonl")
    history.append({"epoch": 3})
    with pytest.raises(ThresherError, match="already holds epoch 3, so epoch 3 cannot follow"):
        history.append({"epoch": 3})
    assert read_history(tmp_path / "history.jsonl") == [{"epoch": 3}]


def test_restore_changes_memory_and_file(tmp_path):
    path = tmp_path / "history.jsonl"
    history = History(path)
    for epoch in (1, 2, 3, 4):
        history.append({"epoch": epoch})
    history.restore([{"epoch": 1}, {"epoch": 2}])
    assert read_history(path) == history.records == [{"epoch": 1}, {"epoch": 2}]
    history.append({"epoch": 3, "again": True})
    assert read_history(path)[-1] == {"epoch": 3, "again": True}


def test_a_line_torn_by_a_kill_is_dropped_and_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"epoch": 1}\n{"epoch": 2, "tra')
    history = History(path)
    history.restore(read_history(path))
    history.append({"epoch": 2})
    assert read_history(path) == [{"epoch": 1}, {"epoch": 2}]


def test_damage_in_the_middle_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "history.jsonl"
    path.write_text('{"epoch": 1}\n{"epo\n{"epoch": 3}\n')
    with pytest.raises(FormatError, match=r"history.jsonl:2: not a history record"):
        read_history(path)


def test_nan_is_refused_since_json_has_none():
    with pytest.raises(ValueError, match="JSON"):
        History().append({"epoch": 1, "train_loss": float("nan")})


def draw():
    return random.random(), random.gauss(0, 1), np.random.random(), np.random.normal(), torch.rand(()).item()


def test_one_seed_fixes_all_generators():
    with isolated_rng():
        seed_all(5)
        first = draw()
        seed_all(5)
        assert draw() == first
        seed_all(6)
        assert all(a != b for a, b in zip(draw(), first, strict=True))


def test_state_is_restored_exactly_also_with_a_gaussian_in_store():
    with isolated_rng():
        draw()  # both gaussian generators now hold the second of a pair
        state = capture_rng_state()
        expected = [draw() for _ in range(3)]
        seed_all(0)
        restore_rng_state(state)
        assert [draw() for _ in range(3)] == expected
        assert all(isinstance(value, torch.Tensor) for value in state.values())


def test_isolated_rng_leaves_no_trace():
    before = capture_rng_state()
    with isolated_rng():
        seed_all(1)
        draw()
    after = capture_rng_state()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_derived_seeds_differ_by_seed_name_and_grouping():
    seeds = [derive_seed(0), derive_seed(1), derive_seed(0, "a"), derive_seed(0, "b"), derive_seed(0, "a", "b"),
             derive_seed(0, "ab"), derive_seed(0, "a", 1)]  # fmt: skip
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(0, "a") == 8517966169931683447  # never changes: results are reproduced by it
