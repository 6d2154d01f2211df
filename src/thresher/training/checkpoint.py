"""Stop and go on exactly: tensors and plain facts of a running training in one safetensors file, no pickle.

`Checkpoint` is the file and knows nothing of what it holds. The `pack_` functions turn a model, an optimizer and the
random generators into tensors and facts under their names; the `unpack_` functions put them back.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from thresher._internal.files import atomic_file
from thresher._internal.mapped_tensors import copy_of
from thresher._internal.tensor_state import load_tensor_state_, tensor_state
from thresher.errors import FormatError, ThresherError
from thresher.training.seeding import capture_rng_state, restore_rng_state

FORMAT = "thresher-checkpoint"
VERSION = 1


@dataclass
class Checkpoint:
    """Everything a training needs to go on: tensors by name and JSON facts, both open to whoever adds theirs.

    The tensors of a loaded one are its file, mapped: together they may be larger than the memory, so whoever keeps one
    copies it to where it belongs.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, prefix: str, tensors: Mapping[str, Tensor]) -> None:
        """Take in tensors as `prefix/name`."""
        self.tensors |= {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}

    def under(self, prefix: str) -> dict[str, Tensor]:
        """The tensors added under a prefix, by their own names."""
        start = f"{prefix}/"
        return {name.removeprefix(start): tensor for name, tensor in self.tensors.items() if name.startswith(start)}

    def save(self, path: Path) -> None:
        """Write the file; whatever happens meanwhile, `path` holds either the old checkpoint or this one, whole."""
        stored, same = _distinct(self.tensors)
        metadata = {
            "format": FORMAT,
            "version": str(VERSION),
            "facts": json.dumps(self.facts, allow_nan=False),
            "same": json.dumps(same),
            "crc32": str(_checksum(stored)),
        }
        with atomic_file(path) as beside:
            save_file(stored, beside, metadata)

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """Read the file.

        Raises:
            FormatError: it is not a checkpoint, is damaged, or is of a later version.
        """
        remedy = "delete it to start anew, or put back an earlier copy"
        try:
            with safe_open(path, framework="pt") as file:
                metadata: dict[str, str] = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except FileNotFoundError:
            raise FormatError(f"checkpoint {path} does not exist") from None
        except (SafetensorError, OSError) as error:
            raise FormatError(f"checkpoint {path} is damaged ({error}); {remedy}") from None
        if metadata.get("format") != FORMAT:
            raise FormatError(f"{path} is no checkpoint of Thresher; {remedy}")
        if int(metadata["version"]) > VERSION:
            raise FormatError(
                f"checkpoint {path} is of format version {metadata['version']}, this release reads up to {VERSION}; "
                "use the release that wrote it"
            )
        if int(metadata["crc32"]) != _checksum(tensors):
            raise FormatError(f"checkpoint {path} is damaged (its checksum differs); {remedy}")
        tensors |= {name: tensors[first] for name, first in json.loads(metadata["same"]).items()}
        return cls(tensors=tensors, facts=json.loads(metadata["facts"]))


def pack_model(checkpoint: Checkpoint, model: nn.Module) -> None:
    """The tensors of the model's `state_dict`."""
    checkpoint.add("model", tensor_state(model))


def weights_digest(model: nn.Module) -> str:
    """A short name for all a model holds now; it is read once, and nothing of it is copied where it is on the CPU."""
    state = {name: tensor.detach().cpu() for name, tensor in tensor_state(model).items()}
    return f"{_checksum(state):08x}"


def unpack_model_(checkpoint: Checkpoint, model: nn.Module) -> None:
    """Put the stored state into the model; its Parameter objects stay, so that optimizers remain valid."""
    try:
        load_tensor_state_(model, checkpoint.under("model"))
    except RuntimeError as error:
        raise FormatError(
            f"the checkpoint belongs to another model: {error}. Build the model with the settings it was "
            "saved with, or delete the checkpoint to start anew"
        ) from None


def pack_optimizer(checkpoint: Checkpoint, optimizer: torch.optim.Optimizer) -> None:
    """Any torch optimizer's state, by the order of its parameters: tensors as they are, numbers as facts."""
    numbers: dict[str, dict[str, Any]] = {}
    for index, parameter in enumerate(_parameters(optimizer)):
        state = optimizer.state.get(parameter, {})
        checkpoint.add(f"optimizer/{index}", {key: value for key, value in state.items() if isinstance(value, Tensor)})
        numbers[str(index)] = {key: value for key, value in state.items() if not isinstance(value, Tensor)}
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    shapes = [list(parameter.shape) for parameter in _parameters(optimizer)]
    checkpoint.facts["optimizer"] = {"groups": groups, "numbers": numbers, "shapes": shapes}


def unpack_optimizer_(checkpoint: Checkpoint, optimizer: torch.optim.Optimizer) -> None:
    """Put the stored state into an optimizer built over the same parameters in the same order."""
    facts = checkpoint.facts["optimizer"]
    parameters = _parameters(optimizer)
    if facts["shapes"] != [list(parameter.shape) for parameter in parameters]:
        raise FormatError(
            "the checkpoint's optimizer has other parameters than this one; build model and optimizer with the "
            "settings it was saved with, or delete the checkpoint to start anew"
        )
    # Not `load_state_dict`: it casts every tensor to the parameter's type, which spoils integer state.
    indices = iter(range(len(parameters)))
    for group, stored in zip(optimizer.param_groups, facts["groups"], strict=True):
        group |= {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
        step_on_device = group.get("fused") or group.get("capturable")
        for parameter, index in zip(group["params"], indices, strict=False):
            tensors = checkpoint.under(f"optimizer/{index}")
            optimizer.state[parameter] = facts["numbers"][str(index)] | {
                key: copy_of(tensor) if key == "step" and not step_on_device else _copy_to(parameter.device, tensor)
                for key, tensor in tensors.items()
            }


def packed_optimizer(optimizer: torch.optim.Optimizer) -> Checkpoint:
    """An optimizer alone, for a judge that has one of its own to put among its facts and tensors."""
    packed = Checkpoint()
    pack_optimizer(packed, optimizer)
    return packed


def load_optimizer_(optimizer: torch.optim.Optimizer, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Put back the facts and tensors of a `packed_optimizer`."""
    unpack_optimizer_(Checkpoint(tensors=dict(tensors), facts=dict(facts)), optimizer)


def _copy_to(device: torch.device, tensor: Tensor) -> Tensor:
    return copy_of(tensor) if device == tensor.device else tensor.to(device)


def pack_rng(checkpoint: Checkpoint) -> None:
    """The state of all global random generators, now."""
    checkpoint.add("rng", capture_rng_state())


def unpack_rng_(checkpoint: Checkpoint) -> None:
    restore_rng_state(checkpoint.under("rng"))


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _distinct(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors on the CPU that share no memory (the format forbids it), and which further names stand for which."""
    stored: dict[str, Tensor] = {}
    same: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ThresherError(f"the state {name!r} is a {type(tensor).__name__}; checkpoints hold tensors only")
        key = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if tensor.numel() and key in seen:
            same[name] = seen[key]
            continue
        seen[key] = name
        whole = tensor.detach().cpu().contiguous()
        storage = whole.untyped_storage()
        if storage.data_ptr() in storages or storage.nbytes() != whole.nbytes:
            whole = whole.clone()
        storages.add(whole.untyped_storage().data_ptr())
        stored[name] = whole
    return stored, same


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    total = 0
    for name in sorted(tensors):
        total = zlib.crc32(name.encode(), total)
        if tensors[name].numel():
            total = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, total)
    return total
