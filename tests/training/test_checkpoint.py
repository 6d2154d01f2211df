import os

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from training_toys import toy_model, toy_sources

from thresher._internal.mapped_tensors import tensor_state
from thresher.errors import FormatError, ThresherError
from thresher.training.checkpoint import (
    Checkpoint,
    pack_optimizer,
    unpack_model_,
    unpack_optimizer_,
)
from thresher.training.loop import train_epoch
from thresher.training.optimizers import OptimizerConfig, build_optimizer
from thresher.training.seeding import capture_rng_state, isolated_rng, restore_rng_state, seed_all


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
    checkpoint = Checkpoint()
    pack_optimizer(checkpoint, optimizer)
    checkpoint.add("twin", {"exp_avg": optimizer.state[weight]["exp_avg"]})
    checkpoint.save(tmp_path / "c.safetensors")

    class NoCopies(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            assert function not in (torch.ops.aten.clone.default, torch.ops.aten.copy_.default)
            return function(*args, **(kwargs or {}))

    with NoCopies():
        loaded = Checkpoint.load(tmp_path / "c.safetensors")
    expected = optimizer.state[weight]
    unpack_optimizer_(loaded, optimizer)
    for key, tensor in loaded.under("optimizer/0").items():
        assert torch.equal(tensor, expected[key])
        tensor.zero_()
        assert torch.equal(optimizer.state[weight][key], expected[key])
    again = Checkpoint.load(tmp_path / "c.safetensors")
    assert torch.equal(again.tensors["twin/exp_avg"], expected["exp_avg"])  # the file is not changed


def test_prefixes_keep_names_apart():
    checkpoint = Checkpoint()
    checkpoint.add("a", {"x": torch.zeros(1)})
    checkpoint.add("a/b", {"x": torch.ones(1)})
    assert set(checkpoint.under("a")) == {"x", "b/x"}
    assert checkpoint.under("a/b")["x"].item() == 1


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
    monkeypatch.setattr("thresher.training.checkpoint.VERSION", 2)
    Checkpoint().save(tmp_path / "later.safetensors")
    monkeypatch.undo()
    with pytest.raises(FormatError, match="format version 2; this release reads up to 1"):
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


def test_state_that_is_no_tensor_is_refused(tmp_path):
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
        checkpoint.add("model", tensor_state(model))
        pack_optimizer(checkpoint, optimizer)
        checkpoint.add("rng", capture_rng_state())
        checkpoint.save(path)
        expected_loss = train_epoch(model, train, optimizer, 2)

        seed_all(2)
        resumed, resumed_optimizer = build()
        loaded = Checkpoint.load(path)
        unpack_model_(loaded, resumed)
        unpack_optimizer_(loaded, resumed_optimizer)
        restore_rng_state(loaded.under("rng"))
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
    checkpoint = Checkpoint()
    pack_optimizer(checkpoint, first)
    checkpoint.save(tmp_path / "c.safetensors")
    unpack_optimizer_(Checkpoint.load(tmp_path / "c.safetensors"), second)
    assert second.param_groups[0]["lr"] == 0.25
    assert second.param_groups[0]["betas"] == (0.9, 0.99)
    assert second.state[weight]["last_step"].tolist() == [2**40, 1, 2]
    assert second.state[weight]["count"] == 5


def test_another_model_is_refused():
    checkpoint = Checkpoint()
    checkpoint.add("model", tensor_state(nn.Linear(2, 1)))
    pack_optimizer(checkpoint, torch.optim.SGD(nn.Linear(2, 1).parameters()))
    with pytest.raises(FormatError, match="belongs to another model"):
        unpack_model_(checkpoint, nn.Linear(3, 1))
    with pytest.raises(FormatError, match="other parameters"):
        unpack_optimizer_(checkpoint, torch.optim.SGD(nn.Linear(3, 1).parameters()))
