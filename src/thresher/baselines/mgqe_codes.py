"""MgqeCodes: what is stored of MGQE, packed codes and the centroids they name, and how codes are packed.

Looks up, does not train; the method itself is `mgqe`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from thresher.embeddings.base import FieldEmbedding
from thresher.embeddings.stored_form import (
    StoredForm,
    check_shape,
    read_integer,
    read_integers,
    register_stored_form,
    stored_runs,
)

BITS_PER_PARAMETER = 32
MGQE_TENSORS = {"centroids", "frequent_codes", "rare_codes", "run_starts", "run_groups", "run_rows"}


@register_stored_form("mgqe")
class MgqeCodes(FieldEmbedding):
    """What is left after training: packed codes and centroids. Looks up, does not train."""

    def __init__(
        self, field_sizes: Sequence[int], tensors: Mapping[str, Tensor], bits: tuple[int, int], num_parameters: int
    ) -> None:
        num_subspaces, _, width = tensors["centroids"].shape
        super().__init__(field_sizes, num_subspaces * width)
        self.bits, self._num_parameters = bits, num_parameters
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    @classmethod
    def from_stored(cls, field_sizes: Sequence[int], form: StoredForm) -> "MgqeCodes":
        tensors, bits = form.tensors, read_integers(form.metadata, "bits")
        centroids, runs = tensors["centroids"], stored_runs(form, 2, sum(field_sizes))
        if set(tensors) != MGQE_TENSORS or centroids.ndim != 3 or not centroids.is_floating_point():
            raise ValueError(
                f"it should have the tensors {', '.join(sorted(MGQE_TENSORS))}, with centroids [S, K, D/S]"
            )
        num_subspaces, num_centroids, _ = centroids.shape
        if not centroids.numel() or len(bits) != 2 or bits[1] > bits[0] or bits[0] != code_bits(num_centroids):
            raise ValueError(f"codes of {bits} bits are not those of {num_centroids} centroids")
        code_bytes = 0
        for name, count, each in zip(("frequent_codes", "rare_codes"), runs.group_sizes, bits, strict=True):
            num_codes = count * num_subspaces
            check_shape(tensors, name, (-(-num_codes * each // 8),))
            if tensors[name].dtype != torch.uint8:
                raise ValueError(f"{name} holds {tensors[name].dtype}, not bytes")
            if 1 << each > num_centroids and largest_code(tensors[name], num_codes, each) >= num_centroids:
                raise ValueError(f"{name} names a centroid beyond the {num_centroids} there are")
            code_bytes += tensors[name].nbytes
        num_parameters = read_integer(form.metadata, "num_parameters")
        if num_parameters != centroids.numel() + -(-code_bytes * 8 // BITS_PER_PARAMETER):
            raise ValueError("num_parameters is not what centroids and codes come to")
        return cls(field_sizes, {**tensors, "centroids": centroids.float()}, (bits[0], bits[1]), num_parameters)

    def forward(self, ids: Tensor) -> Tensor:
        tensors: dict[str, Any] = self._buffers
        centroids, starts = tensors["centroids"], tensors["run_starts"].long()
        flat = ids.reshape(-1).long().contiguous()
        run = torch.searchsorted(starts, flat, right=True) - 1
        row = (tensors["run_rows"][run] + flat - starts[run])[:, None]
        frequent = (tensors["run_groups"][run] == 0)[:, None]
        place = row * len(centroids) + torch.arange(len(centroids))  # which code of its stream, [M, S]
        codes = torch.where(
            frequent,
            unpack_codes(tensors["frequent_codes"], torch.where(frequent, place, 0), self.bits[0]),
            unpack_codes(tensors["rare_codes"], torch.where(frequent, 0, place), self.bits[1]),
        )
        return take_centroids(centroids, codes).reshape(*ids.shape, self.embedding_dim)

    def num_parameters(self) -> int:
        return self._num_parameters

    def storage_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.buffers())


def code_bits(num_centroids: int) -> int:
    """Bits that tell so many centroids apart."""
    return (num_centroids - 1).bit_length()


def pack_codes(codes: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Codes of any shape as one stream of `bits` bits each, lowest bit first."""
    each = (codes.reshape(-1, 1) >> np.arange(bits)) & 1
    return np.packbits(each.astype(np.uint8), bitorder="little")


def unpack_codes(stream: Tensor, place: Tensor, bits: int) -> Tensor:
    """The codes at places `[...]` of a packed stream, `[...]`."""
    if bits == 0 or not len(stream):
        return torch.zeros_like(place)
    first = place * bits
    at = torch.div(first, 8, rounding_mode="floor")
    # 16 bits at an offset of up to 7 lie in three bytes
    word = sum(stream[(at + k).clamp_max(len(stream) - 1)].long() << (8 * k) for k in range(3))
    return (word >> (first % 8)) & ((1 << bits) - 1)


def largest_code(stream: Tensor, num_codes: int, bits: int) -> int:
    """The largest of the codes in a packed stream, read a part at a time."""
    parts = (torch.arange(first, min(first + 65_536, num_codes)) for first in range(0, num_codes, 65_536))
    return max((int(unpack_codes(stream, part, bits).max()) for part in parts), default=0)


def take_centroids(centroids: Tensor, codes: Tensor) -> Tensor:
    """Centroids `[S, K, w]` at codes `[U, S]` → `[U, S, w]`."""
    return centroids[torch.arange(len(centroids)), codes.long()]
