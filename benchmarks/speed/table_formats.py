"""Formats of a pruned table for the lookup and memory benchmarks, with one interface.

Each format is made from the same kept entries, saved to a folder, loaded from it, and returns the vectors `[n, D]` of
ids `[n]`. `dense …` formats store every entry. torch's CSR has no row lookup, so rows are gathered from its tensors.
"""

import warnings
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from thresher.compact.layouts import VALUE_TYPES
from thresher.compact.table import CompactTable

Entries = tuple[tuple[int, int], np.ndarray, np.ndarray]
"""Shape, flat positions, values."""


def random_entries(num_features: int, embedding_dim: int, density: float, seed: int = 0) -> Entries:
    """Draw random kept entries without building the dense mask."""
    generator = np.random.default_rng(seed)
    num_cells = num_features * embedding_dim
    if density > 0.1:
        parts = [
            start + np.flatnonzero(generator.random(min(1 << 24, num_cells - start)) < density)
            for start in range(0, num_cells, 1 << 24)
        ]
        positions = np.concatenate(parts)
    else:
        positions = np.unique(generator.integers(0, num_cells, int(num_cells * -np.log1p(-density))))
    return (num_features, embedding_dim), positions, generator.standard_normal(len(positions), np.float32)


class TableFormat(ABC):
    """Interface of a table format."""

    @classmethod
    @abstractmethod
    def save(cls, entries: Entries, folder: Path) -> None: ...

    @abstractmethod
    def __init__(self, folder: Path) -> None: ...

    @abstractmethod
    def look_up(self, ids: Tensor) -> Tensor: ...


class Dense(TableFormat):
    """`nn.Embedding` in float32."""

    @classmethod
    def save(cls, entries: Entries, folder: Path) -> None:
        save_file({"weight": to_dense(entries)}, folder / "table.safetensors")

    def __init__(self, folder: Path) -> None:
        weight = load_file(folder / "table.safetensors")["weight"]
        self.embedding = torch.nn.Embedding.from_pretrained(weight)

    def look_up(self, ids: Tensor) -> Tensor:
        vectors: Tensor = self.embedding(ids)
        return vectors


class DenseQuantized(TableFormat):
    """torch's quantized embedding with a scale and offset per row, looked up as bags of size one."""

    pack: Any
    unpack: Any

    @classmethod
    def save(cls, entries: Entries, folder: Path) -> None:
        save_file({"weight": cls.pack(to_dense(entries))}, folder / "table.safetensors")

    def __init__(self, folder: Path) -> None:
        self.weight = load_file(folder / "table.safetensors")["weight"]

    def look_up(self, ids: Tensor) -> Tensor:
        offsets = torch.arange(len(ids) + 1)
        vectors: Tensor = type(self).unpack(self.weight, ids, offsets, mode=0, include_last_offset=True)
        return vectors


class DenseInt8(DenseQuantized):
    pack = torch.ops.quantized.embedding_bag_byte_prepack
    unpack = torch.ops.quantized.embedding_bag_byte_rowwise_offsets


class DenseInt4(DenseQuantized):
    pack = torch.ops.quantized.embedding_bag_4bit_prepack
    unpack = torch.ops.quantized.embedding_bag_4bit_rowwise_offsets


class ScipyCsr(TableFormat):
    """`scipy.sparse.csr_array`, float32 with int32 indices."""

    @classmethod
    def save(cls, entries: Entries, folder: Path) -> None:
        import scipy.sparse

        scipy.sparse.save_npz(folder / "table.npz", to_scipy(entries), compressed=False)

    def __init__(self, folder: Path) -> None:
        import scipy.sparse

        self.matrix = scipy.sparse.load_npz(folder / "table.npz")

    def look_up(self, ids: Tensor) -> Tensor:
        return torch.from_numpy(self.matrix[ids.numpy()].toarray())


class TorchCsr(TableFormat):
    """The tensors of a torch CSR matrix with int64 indices."""

    @classmethod
    def save(cls, entries: Entries, folder: Path) -> None:
        (num_features, embedding_dim), positions, values = entries
        starts = np.searchsorted(positions // embedding_dim, np.arange(num_features + 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that CSR is a beta feature
            matrix = torch.sparse_csr_tensor(
                torch.from_numpy(starts), torch.from_numpy(positions % embedding_dim), torch.from_numpy(values)
            )
        tensors = {"crow": matrix.crow_indices(), "col": matrix.col_indices(), "values": matrix.values()}
        save_file({**tensors, "dim": torch.tensor([embedding_dim])}, folder / "table.safetensors")

    def __init__(self, folder: Path) -> None:
        tensors = load_file(folder / "table.safetensors")
        self.crow, self.col, self.values = tensors["crow"], tensors["col"], tensors["values"]
        self.embedding_dim = int(tensors["dim"])

    def look_up(self, ids: Tensor) -> Tensor:
        first = self.crow[ids]
        sizes = self.crow[ids + 1] - first
        place = torch.repeat_interleave(sizes)
        entry = torch.arange(len(place)) + (first - (sizes.cumsum(0) - sizes))[place]
        vectors = torch.zeros(len(ids) * self.embedding_dim)
        vectors[place * self.embedding_dim + self.col[entry]] = self.values[entry]
        return vectors.view(len(ids), self.embedding_dim)


class Compact(TableFormat):
    """Thresher's compact table, memory-mapped."""

    value_type: Any = "fp32"

    @classmethod
    def save(cls, entries: Entries, folder: Path) -> None:
        CompactTable.from_entries(*entries, value_type=cls.value_type).save(folder / "table.safetensors")

    def __init__(self, folder: Path) -> None:
        self.table = CompactTable.load(folder / "table.safetensors")

    def look_up(self, ids: Tensor) -> Tensor:
        return self.table.lookup(ids)


FORMATS: dict[str, type[TableFormat]] = {
    "dense fp32": Dense,
    "dense int8": DenseInt8,
    "dense int4": DenseInt4,
    "scipy CSR": ScipyCsr,
    "torch CSR": TorchCsr,
    **{f"compact {kind}": type(f"Compact_{kind}", (Compact,), {"value_type": kind}) for kind in VALUE_TYPES},
}


def to_dense(entries: Entries) -> Tensor:
    shape, positions, values = entries
    weight = torch.zeros(shape)
    weight.view(-1)[torch.from_numpy(positions)] = torch.from_numpy(values)
    return weight


def to_scipy(entries: Entries) -> Any:
    from scipy.sparse import csr_array

    shape, positions, values = entries
    starts = np.searchsorted(positions // shape[1], np.arange(shape[0] + 1))
    return csr_array((values, (positions % shape[1]).astype(np.int32), starts.astype(np.int32)), shape=shape)


def disk_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
