"""What golden runs record, and how two records are compared. Nothing of the library is imported here.

Digests do not depend on the names of tensors or on their order in a model, so both may change.
"""

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import torch
from torch import Tensor

Record = dict[str, Any]


def digest(tensor: Tensor) -> str:
    """The sha256 of one tensor: its type, its shape and its values."""
    array = tensor.detach().cpu().contiguous()
    found = hashlib.sha256(f"{array.dtype} {list(array.shape)} ".encode())
    found.update(array.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def digest_all(tensors: Mapping[str, Any]) -> str:
    """One sha256 of several tensors that does not depend on their names or their order."""
    digests = sorted(digest(tensor) for tensor in tensors.values() if isinstance(tensor, Tensor))
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def point_record(point: Any) -> Record:
    """Sizes and metrics of a `FrontierPoint` or a `ComparedPoint`."""
    names = ("num_parameters", "storage_bytes", "validation_auc", "validation_logloss", "test_auc", "test_logloss")
    return {name: getattr(point, name) for name in names}


def trained_record(trained: Any) -> Record:
    """Sizes, metrics and weights of a `Trained`."""
    return {
        "num_parameters": trained.num_parameters,
        "storage_bytes": trained.storage_bytes,
        "validation_auc": trained.fit.validation.auc,
        "validation_logloss": trained.fit.validation.logloss,
        "test_auc": trained.test.auc,
        "test_logloss": trained.test.logloss,
        "state": digest_all(trained.model.state_dict()),
    }


def ticket_record(ticket: Any) -> Record:
    """What a ticket of any kind says: masks or widths, and the weights to start from."""
    made = ticket.provenance
    record: Record = {"method": made.method, "seed": made.seed, "budget": str(ticket.budget)}
    record |= {"step": made.step, "epoch": made.epoch, "num_parameters": ticket.num_parameters}
    if hasattr(ticket, "masks"):
        record["masks"] = digest_all(ticket.masks)
        for name in ("initial", "final"):
            weights = getattr(ticket, name)
            record |= {f"{name} values": digest_all(weights.values), f"{name} state": digest_all(weights.state)}
    elif hasattr(ticket, "sizes"):
        record["widths"] = digest_all(ticket.sizes())
        record |= {name: digest_all(getattr(ticket, name)) for name in ("initial", "final")}
    else:
        record["storage_bytes"] = ticket.storage_bytes
    return record


def in_order(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=json.dumps)


SAME_RESULTS = {"znver5": "znver4"}
"""Processor family → the family that its results were found to equal, by `python tests/golden/runs.py --check`."""


def environment() -> dict[str, str]:
    """What exact results depend on besides the code."""
    family = llvmlite.binding.get_host_cpu_name()
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "processor family": SAME_RESULTS.get(family, family),
        "vector instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


def environment_differences(expected: Record) -> list[str]:
    return differences(expected["environment"], environment())


def differences(expected: Any, found: Any, place: str = "") -> list[str]:
    """Every value in which two records differ, with its place in them.

    >>> differences({"dense": {"auc": 0.7}}, {"dense": {"auc": 0.8}})
    ['dense / auc: expected 0.7, found 0.8']
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        pairs = [(key, expected.get(key, "nothing"), found.get(key, "nothing")) for key in {**expected, **found}]
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = [(str(at), *pair) for at, pair in enumerate(zip(expected, found, strict=True))]
    else:
        return [] if expected == found else [f"{place}: expected {expected!r}, found {found!r}"]
    return [
        line
        for key, left, right in pairs
        for line in differences(left, right, f"{place} / {key}" if place else str(key))
    ]
