"""Are these the rows of the last time? A short name for a source's first batch, whatever its inputs are."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from thresher.data.batches.batches import BatchSource


def first_batch_digest(source: "BatchSource") -> str:
    """Other rows, labels or weights, another order or batch size: another name, as far as the first batch shows it."""
    digest = hashlib.sha256()
    for batch in source.epoch(1):
        for part in _parts((batch.inputs, batch.labels, batch.weights)):
            digest.update(part)
        break
    return digest.hexdigest()[:16]


def _parts(value: Any) -> Iterator[bytes]:
    """What a batch holds, as bytes; of objects we do not know only their type."""
    if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_nested:
        yield f"{value.dtype} {list(value.shape)}".encode()
        yield value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield str(name).encode()
            yield from _parts(one)
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _parts(one)
    elif is_dataclass(value):
        for one in fields(value):
            yield from _parts(getattr(value, one.name))
    else:
        yield (repr(value) if isinstance(value, str | int | float | None) else type(value).__qualname__).encode()
