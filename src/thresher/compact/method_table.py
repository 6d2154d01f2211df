"""The stored forms of embeddings: a `CompactTable` for pruned and plain tables, a `MethodTable` for other methods."""

import json
from collections.abc import Sequence
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor, nn

from thresher.compact.embedding import CompactEmbedding
from thresher.compact.file import FORMAT as COMPACT_FORMAT, check_finite, load_arrays, map_safetensors, save_arrays
from thresher.compact.table import CompactTable, OutOfRange
from thresher.embeddings.base import FieldEmbedding
from thresher.embeddings.pep import PepEmbedding
from thresher.embeddings.stored_form import Storable, StoredForm, build_stored
from thresher.embeddings.uniform import UniformEmbedding
from thresher.errors import ConfigError, FormatError, OutsideTableError

FORMAT = "thresher.method-table"
BUILD_ERRORS = (ConfigError, LookupError, TypeError, ValueError, RuntimeError, ArithmeticError, AttributeError)
"""What `build_stored` may raise for an inconsistent form: errors of the method or of torch."""


class MethodTable:
    """The immutable stored form of a method that shares or projects rows (codes, hashes, projections)."""

    def __init__(self, field_sizes: Sequence[int], form: StoredForm) -> None:
        self.form = form
        self._embedding = build_stored(field_sizes, form)
        self.num_features, self.embedding_dim = self._embedding.num_features, self._embedding.embedding_dim
        self.shape = (self.num_features, self.embedding_dim)
        self.num_parameters = self._embedding.num_parameters()
        self.storage_bytes = sum(tensor.nbytes for tensor in form.tensors.values())  # everything a lookup reads

    @classmethod
    def from_embedding(cls, embedding: FieldEmbedding) -> "MethodTable":
        assert isinstance(embedding, Storable)
        form = embedding.to_stored()
        tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in form.tensors.items()}
        return cls(embedding.field_sizes, StoredForm(form.kind, tensors, form.metadata))

    @torch.no_grad()
    def lookup(self, ids: Tensor, *, out_of_range: OutOfRange = "error") -> Tensor:
        """Vectors `[..., D]` of ids `[...]`; an id outside the table raises `IndexError` or gives zeros."""
        outside = (ids < 0) | (ids >= self.num_features)
        if not bool(outside.any()):
            vectors: Tensor = self._embedding(ids)
            return vectors
        if out_of_range == "error":
            raise OutsideTableError.of(int(ids[outside][0]), self.num_features)
        inside: Tensor = self._embedding(ids.masked_fill(outside, 0))
        return inside.masked_fill(outside[..., None], 0.0)

    def check_finite(self, path: Path) -> None:
        """Raise `FormatError` if a value that was read from `path` is NaN or infinite."""
        check_finite(path, self._arrays())

    def save(self, path: str | Path) -> None:
        method = {
            "kind": self.form.kind,
            "field_sizes": self._embedding.field_sizes,
            "metadata": dict(self.form.metadata),
        }
        save_arrays(Path(path), self._arrays(), FORMAT, method=json.dumps(method))

    @classmethod
    def load(cls, path: str | Path, *, verify: bool = True) -> "MethodTable":
        """Open a saved table, memory-mapped and checked; `verify` also checks all values and the checksum."""
        metadata, arrays = load_arrays(Path(path), FORMAT, verify=verify, private=True)
        try:
            method = json.loads(metadata["method"])
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            table = cls(method["field_sizes"], StoredForm(method["kind"], tensors, method["metadata"]))
        except FormatError as error:
            raise FormatError(f"cannot read the table {path}: {error}") from error
        except BUILD_ERRORS as error:
            raise FormatError(f"inconsistent table ({path}): {error}. Export it again.") from error
        if verify:
            table.check_finite(Path(path))
        return table

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {name: tensor.numpy() for name, tensor in self.form.tensors.items()}

    def __repr__(self) -> str:
        size = f"{self.num_parameters} parameters, {self.storage_bytes} bytes"
        return f"MethodTable({list(self.shape)}, {self.form.kind}, {size})"


AnyTable = CompactTable | MethodTable


class StoredEmbedding(FieldEmbedding):
    """Ids `[...]` → vectors `[..., D]` from a table, frozen; `CompactEmbedding.from_table` is the trainable form."""

    def __init__(self, field_sizes: Sequence[int], table: AnyTable) -> None:
        if table.num_features != sum(field_sizes):
            raise ValueError(f"the table has {table.num_features} rows, but field_sizes sum to {sum(field_sizes)}.")
        super().__init__(field_sizes, table.embedding_dim)
        self.table = table

    def forward(self, ids: Tensor) -> Tensor:
        return self.table.lookup(ids)

    def num_parameters(self) -> int:
        return self.table.num_parameters

    def storage_bytes(self) -> int:
        return self.table.storage_bytes

    def extra_repr(self) -> str:
        return repr(self.table)


@singledispatch
def to_compact(embedding: nn.Module) -> CompactTable:
    """A trained embedding as a `CompactTable`; other classes register theirs with `@to_compact.register`."""
    raise TypeError(
        f"{type(embedding).__qualname__} has no compact form. Register one with @to_compact.register, "
        "or retrain a ticket first, which gives a CompactEmbedding."
    )


@to_compact.register
def _(embedding: CompactEmbedding) -> CompactTable:
    return embedding.to_table()


@to_compact.register
def _(embedding: StoredEmbedding) -> CompactTable:
    if not isinstance(embedding.table, CompactTable):
        raise TypeError(f"{embedding.table} is a method table, not a compact table.")
    return embedding.table


@to_compact.register
def _(embedding: PepEmbedding) -> CompactTable:
    weight = embedding.pruned_weight().detach()
    return CompactTable.from_mask(weight != 0, weight)


@to_compact.register(UniformEmbedding)
@to_compact.register(nn.Embedding)
def _(embedding: UniformEmbedding | nn.Embedding) -> CompactTable:
    weight = embedding.weight.detach()
    return CompactTable.from_mask(torch.ones_like(weight, dtype=torch.bool), weight)


def has_compact_form(module: nn.Module) -> bool:
    """Whether `to_compact` accepts this module."""
    return to_compact.dispatch(type(module)) is not to_compact.dispatch(nn.Module)


def to_table(embedding: nn.Module) -> AnyTable:
    """The table that a bundle stores for an embedding: a compact table, or a method table."""
    if isinstance(embedding, StoredEmbedding):
        return embedding.table
    if isinstance(embedding, FieldEmbedding) and not has_compact_form(embedding) and isinstance(embedding, Storable):
        return MethodTable.from_embedding(embedding)
    return to_compact(embedding)


def has_table(module: nn.Module) -> bool:
    """Whether `to_table` accepts this module."""
    return has_compact_form(module) or (isinstance(module, FieldEmbedding) and isinstance(module, Storable))


def load_any_table(path: Path, *, verify: bool = True) -> AnyTable:
    """Open a compact table or a method table, whichever the file contains."""
    if map_safetensors(path)[0].get("format") == COMPACT_FORMAT:
        return CompactTable.load(path, verify=verify)
    return MethodTable.load(path, verify=verify)


def make_trainable_(model: nn.Module) -> Sequence[str]:
    """Replace the compact tables of a model from a bundle by `CompactEmbedding` modules; returns their names."""
    replaced = []
    for name, module in list(model.named_modules()):
        if isinstance(module, StoredEmbedding) and isinstance(module.table, CompactTable):
            model.set_submodule(name, CompactEmbedding.from_table(module.field_sizes, module.table))
            replaced.append(name)
    model.requires_grad_(True)
    return replaced
