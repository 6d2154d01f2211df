"""StoredForm: tensors and metadata that a bundle stores of an embedding that is not a compact table.

Methods with codes, projections or hash seeds implement `to_stored` and `from_stored`. Pruned and plain tables do not:
they are stored as `CompactTable`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from thresher.embeddings.base import FieldEmbedding
from thresher.errors import ConfigError, FormatError

MAX_FEATURES = 2**31 - 1  # starts of runs and fields are int32
MAX_WIDTH = 65_536


@dataclass(frozen=True)
class StoredForm:
    """The stored parts of an embedding."""

    kind: str  # name under which the class that reads it is registered
    tensors: Mapping[str, Tensor]  # everything a lookup reads; their total size is the embedding's `storage_bytes()`
    metadata: Mapping[str, Any]  # JSON data that defines shapes and meaning of the tensors


@runtime_checkable
class Storable(Protocol):
    """An embedding that has a stored form."""

    def to_stored(self) -> StoredForm: ...


_kinds: dict[str, Any] = {}
ClassT = TypeVar("ClassT", bound=type[FieldEmbedding])


def register_stored_form(kind: str) -> Callable[[ClassT], ClassT]:
    """Class decorator that registers the classmethod `from_stored(field_sizes, form)` as the reader of this kind.

    The form may come from an untrusted file. `from_stored` must check every tensor that lookups use as an index, must
    not allocate memory by sizes in the metadata (use `torch.device("meta")` and `put_tensors_`), and must raise
    ValueError for parts that do not fit.
    """

    def register(cls: ClassT) -> ClassT:
        if _kinds.setdefault(kind, cls) is not cls:
            raise ConfigError(f"stored form {kind!r} is already registered by {_kinds[kind]}")
        return cls

    return register


def build_stored(field_sizes: Sequence[int], form: StoredForm) -> FieldEmbedding:
    """Build the embedding of a stored form, for lookups only; it shares the form's tensors.

    Raises FormatError if the form's method is not installed, and ValueError if its parts do not fit together.
    """
    from thresher.embeddings.method_registry import registered_embeddings

    registered_embeddings()  # imports all methods, which register their kinds
    if form.kind not in _kinds:
        raise FormatError(
            f"the method of kind {form.kind!r} is not installed; known kinds: {', '.join(sorted(_kinds))}"
        )
    if not all(type(size) is int and size >= 0 for size in field_sizes):
        raise ValueError("field_sizes must be integers of at least 0")
    if not 1 <= sum(field_sizes) <= MAX_FEATURES:
        raise ValueError(f"field_sizes must sum to 1 … {MAX_FEATURES}, got {sum(field_sizes)}")
    embedding: FieldEmbedding = _kinds[form.kind].from_stored(field_sizes, form)
    if embedding.embedding_dim > MAX_WIDTH:
        raise ValueError(f"embedding_dim must be at most {MAX_WIDTH}, got {embedding.embedding_dim}")
    return embedding.eval().requires_grad_(False)


def read_integer(metadata: Mapping[str, Any], name: str) -> int:
    """Read an integer of at least 0; raise ValueError if it is not one."""
    value = metadata[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} must be an integer of at least 0, got {value!r}")
    return value


def read_integers(metadata: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Read a list of integers of at least 0; raise ValueError if it is not one."""
    values = metadata[name]
    if not isinstance(values, list | tuple) or not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"{name} must be a list of integers of at least 0")
    return tuple(values)


def check_shape(tensors: Mapping[str, Tensor], name: str, shape: Sequence[int]) -> None:
    """Raise ValueError unless the tensor exists and has this shape."""
    if name not in tensors or tuple(tensors[name].shape) != tuple(shape):
        found = f"of shape {list(tensors[name].shape)}" if name in tensors else "missing"
        raise ValueError(f"{name} is {found}; expected shape {list(shape)}")


def put_tensors_(embedding: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Assign the tensors of a form to a module built on the meta device, without copying them."""
    expected: Mapping[str, Tensor] = embedding.state_dict()
    if unknown := tensors.keys() - expected.keys():
        raise ValueError(f"{min(unknown)!r} is not a tensor of this method")
    fitting = {}
    for name, like in expected.items():
        check_shape(tensors, name, like.shape)
        both_floating = tensors[name].is_floating_point() and like.is_floating_point()
        if tensors[name].dtype != like.dtype and not both_floating:
            raise ValueError(f"{name} must have type {like.dtype}, got {tensors[name].dtype}")
        fitting[name] = tensors[name].to(like.dtype)
    embedding.load_state_dict(fitting, assign=True)
