"""The files of a training (checkpoint and history), seeds, and the state of random generators as tensors."""

import hashlib
import json
import os
import random
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from thresher._internal.mapped_tensors import copy_of, load_tensor_state_, tensor_state
from thresher._internal.storage.documents import check_regular, damaged_file
from thresher._internal.storage.files import atomic_file, write_text
from thresher.errors import FormatError, ThresherError, WriteError

FORMAT = "thresher-checkpoint"
VERSION = 2
Record = dict[str, Any]
"""Plain data with an integer `epoch`."""


@dataclass
class Checkpoint:
    """Tensors and JSON metadata to resume a training from. Loaded tensors are memory-mapped: copy those you keep."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, part: "Checkpoint") -> None:
        """Add the tensors of `part` as `name/…` and its metadata as `name`."""
        self.tensors |= {f"{name}/{key}": tensor for key, tensor in part.tensors.items()}
        self.metadata[name] = part.metadata

    def part(self, name: str) -> "Checkpoint":
        """What was added under a name."""
        start = f"{name}/"
        tensors = {key.removeprefix(start): value for key, value in self.tensors.items() if key.startswith(start)}
        return Checkpoint(tensors, self.metadata[name])

    def save(self, path: Path) -> None:
        """Write the file atomically: `path` holds either the old checkpoint or the new one."""
        stored, same = _distinct(self.tensors)
        header = {
            "format": FORMAT,
            "version": str(VERSION),
            "metadata": json.dumps(self.metadata, allow_nan=False),
            "same": json.dumps(same),
            "crc32": str(_checksum(stored)),
        }
        header["sha256"] = _header_digest(header, stored)
        with atomic_file(path) as beside:
            save_file(stored, beside, header)

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """Read the file; raises `FormatError` if it is not a checkpoint, is damaged, or has a later version."""
        remedy = "Delete it to start again, or restore an earlier copy"
        if path.exists():
            check_regular(path)
        try:
            with safe_open(path, framework="pt") as file:
                header: dict[str, str] = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except FileNotFoundError:
            raise FormatError(f"checkpoint {path} does not exist") from None
        except (SafetensorError, OSError) as error:
            raise FormatError(f"checkpoint {path} is damaged ({error}). {remedy}") from None
        if header.get("format") != FORMAT:
            raise FormatError(f"{path} is not a Thresher checkpoint. {remedy}")
        with damaged_file(f"checkpoint {path}", remedy):
            if int(header["version"]) > VERSION:
                found = f"checkpoint {path} has format version {header['version']}"
                raise FormatError(f"{found}; this release reads up to {VERSION}. Use the release that wrote it")
            if header["sha256"] != _header_digest(header, tensors) or int(header["crc32"]) != _checksum(tensors):
                raise ValueError("its checksum differs")
            tensors |= {name: tensors[first] for name, first in json.loads(header["same"]).items()}
            return cls(tensors=tensors, metadata=json.loads(header["metadata"]))


class History:
    """One record per epoch, in memory and, if a path is given, in a file that is complete after each epoch."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.records: list[Record] = []

    def append(self, record: Mapping[str, Any]) -> None:
        """Add an epoch's record and write it to disk."""
        entry = dict(record)
        if self.records and entry["epoch"] <= (last := self.records[-1]["epoch"]):
            where = self.path or "the history"
            raise ThresherError(f"{where} already holds epoch {last}, so epoch {entry['epoch']} cannot follow")
        line = _line(entry)
        self.records.append(entry)
        if self.path is not None:
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise WriteError(
                    f"cannot write {self.path}: {error.strerror or error}. Free disk space or choose another folder"
                ) from error

    def restore(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Replace all records, in memory and in the file, by those of a checkpoint."""
        self.records = [dict(record) for record in records]
        if self.path is not None:
            write_text(self.path, "".join(_line(record) for record in self.records))


def read_history(path: Path) -> list[Record]:
    """The records of a history file. An incomplete last line is skipped; any other damage is an error."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    records: list[Record] = []
    for number, line in enumerate(lines[:-1], 1):  # what follows the last newline is empty or incomplete
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not isinstance(record.get("epoch"), int):
                raise ValueError("expected a JSON object with an integer 'epoch'")
        except ValueError as error:
            raise FormatError(f"{path}:{number}: not a history record ({error}). Delete the line or the file") from None
        records.append(record)
    return records


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n"


def weights_digest(model: nn.Module) -> str:
    """A short digest of a model's present state; tensors on the CPU are not copied."""
    state = {name: tensor.detach().cpu() for name, tensor in tensor_state(model).items()}
    return f"{_checksum(state):08x}"


def unpack_model_(packed: Checkpoint, model: nn.Module) -> None:
    """Load a model's tensors in place, so that optimizers remain valid."""
    try:
        load_tensor_state_(model, packed.tensors)
    except RuntimeError as error:
        raise FormatError(f"the checkpoint belongs to another model: {error}. Delete it to start again") from None


def pack_optimizer(optimizer: torch.optim.Optimizer) -> Checkpoint:
    """The state of any torch optimizer, by the order of its parameters."""
    groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    shapes = [list(parameter.shape) for parameter in _parameters(optimizer)]
    packed = Checkpoint(metadata={"groups": groups, "shapes": shapes})
    for index, parameter in enumerate(_parameters(optimizer)):
        state = optimizer.state.get(parameter, {})
        tensors = {key: value for key, value in state.items() if isinstance(value, Tensor)}
        numbers = {key: value for key, value in state.items() if key not in tensors}
        packed.add(str(index), Checkpoint(tensors, numbers))
    return packed


def unpack_optimizer_(packed: Checkpoint, optimizer: torch.optim.Optimizer) -> None:
    """Load the stored state into an optimizer built over the same parameters in the same order."""
    parameters = _parameters(optimizer)
    if packed.metadata["shapes"] != [list(parameter.shape) for parameter in parameters]:
        raise FormatError("the checkpoint's optimizer has other parameters. Use the same settings, or delete it")
    # `load_state_dict` would cast every tensor to the parameter's type, which breaks integer state
    indices = iter(range(len(parameters)))
    for group, settings in zip(optimizer.param_groups, packed.metadata["groups"], strict=True):
        group |= {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
        step_on_device = group.get("fused") or group.get("capturable")
        for parameter, index in zip(group["params"], indices, strict=False):
            stored = packed.part(str(index))
            state = optimizer.state[parameter] = dict(stored.metadata)
            for key, tensor in stored.tensors.items():
                stays = parameter.device == tensor.device or (key == "step" and not step_on_device)
                state[key] = copy_of(tensor) if stays else tensor.to(parameter.device)


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _distinct(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors on the CPU that share no memory, as the format requires, and further name → name of an equal tensor."""
    stored: dict[str, Tensor] = {}
    same: dict[str, str] = {}
    seen: dict[tuple[Any, ...], str] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ThresherError(f"the state {name!r} is a {type(tensor).__name__}; a checkpoint holds tensors only")
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


def _header_digest(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Covers what `crc32` does not: the metadata, and the types and shapes of the tensors."""
    parts = {key: header[key] for key in ("version", "metadata", "same", "crc32")}
    shapes = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in sorted(tensors)]
    return hashlib.sha256(json.dumps([parts, shapes], sort_keys=True).encode()).hexdigest()


def derive_seed(seed: int, *names: str | int) -> int:
    """A seed for one purpose, e.g. `derive_seed(seed, "batches")`; streams of different names are independent.

    >>> derive_seed(0, "batches") == derive_seed(0, "batches"), derive_seed(0, "batches") == derive_seed(1, "batches")
    (True, False)
    """
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1  # 63 bits fit everywhere


def seed_all(seed: int) -> None:
    """Seed python's, numpy's and torch's (all devices') global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def capture_rng_state() -> dict[str, Tensor]:
    """The state of all global generators; `restore_rng_state` takes it back."""
    _, keys, gauss_next = random.getstate()
    _, numpy_keys, position, has_gauss, cached = np.random.get_state()
    state = {
        "python": torch.tensor(keys, dtype=torch.int64),
        "python_gauss": torch.tensor([] if gauss_next is None else [gauss_next], dtype=torch.float64),
        "numpy": torch.tensor([*np.asarray(numpy_keys).tolist(), int(position)], dtype=torch.int64),
        "numpy_gauss": torch.tensor([cached] if has_gauss else [], dtype=torch.float64),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state |= {f"cuda{k}": device_state for k, device_state in enumerate(torch.cuda.get_rng_state_all())}
    return state


def restore_rng_state(state: Mapping[str, Tensor]) -> None:
    """Restore the captured state of all global generators, including CUDA devices present then and now."""
    gauss_next = state["python_gauss"].tolist()
    random.setstate((3, tuple(state["python"].tolist()), gauss_next[0] if gauss_next else None))
    *keys, position = state["numpy"].tolist()
    cached = state["numpy_gauss"].tolist()
    np.random.set_state(
        ("MT19937", np.array(keys, dtype=np.uint32), position, len(cached), cached[0] if cached else 0.0)
    )
    torch.set_rng_state(state["torch"])
    for k in range(torch.cuda.device_count()):
        if f"cuda{k}" in state:
            torch.cuda.set_rng_state(state[f"cuda{k}"], k)


@contextmanager
def isolated_rng() -> Iterator[None]:
    """Restores the state of the global generators at the end of the block."""
    before = capture_rng_state()
    try:
        yield
    finally:
        restore_rng_state(before)
