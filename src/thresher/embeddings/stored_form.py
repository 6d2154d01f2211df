"""StoredForm: all a lookup needs of a trained embedding that is no compact table, as tensors and plain facts.

Codes, projections, hash seeds: methods with such parts say here what a bundle keeps of them, and how to read it back.
Pruned and plain tables need none of this: they become a `CompactTable`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor

from thresher.embeddings.base import FieldEmbedding
from thresher.errors import ConfigError, FormatError


@dataclass(frozen=True)
class StoredForm:
    """What is kept of an embedding.

    Attributes:
        kind: which class reads it back, by the name it registered.
        tensors: everything a lookup reads; their bytes together are the embedding's `storage_bytes()`.
        facts: plain data that fixes shapes and meaning, as JSON.
    """

    kind: str
    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any]


@runtime_checkable
class Storable(Protocol):
    """An embedding that knows its stored form."""

    def to_stored(self) -> StoredForm: ...


class StorableClass(Protocol):
    """A class that reads a stored form back."""

    @classmethod
    def from_stored(cls, field_sizes: Sequence[int], form: StoredForm) -> FieldEmbedding: ...


_kinds: dict[str, StorableClass] = {}
ClassT = TypeVar("ClassT", bound=StorableClass)


def register_stored_form(kind: str) -> Callable[[ClassT], ClassT]:
    """Class decorator: `cls.from_stored` reads forms of this kind."""

    def register(cls: ClassT) -> ClassT:
        if _kinds.setdefault(kind, cls) is not cls:
            raise ConfigError(f"stored form {kind!r} is already registered by {_kinds[kind]}")
        return cls

    return register


def build_stored(field_sizes: Sequence[int], form: StoredForm) -> FieldEmbedding:
    """The embedding a stored form describes, fit to look up and nothing else."""
    from thresher.embeddings.registry import registered_embeddings

    registered_embeddings()  # loads every method, and with it the kinds
    if form.kind not in _kinds:
        raise FormatError(
            f"a table of kind {form.kind!r} is of a method that is not installed; known: {', '.join(sorted(_kinds))}"
        )
    embedding = _kinds[form.kind].from_stored(field_sizes, form)
    return embedding.eval().requires_grad_(False)
