"""StoredForm: all a lookup needs of a trained embedding that is no compact table, as tensors and plain facts.

Codes, projections, hash seeds: methods with such parts say here what a bundle keeps of them, and how to read it back.
Pruned and plain tables need none of this: they become a `CompactTable`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from torch import Tensor, nn

from thresher.embeddings.base import FieldEmbedding
from thresher.embeddings.feature_groups import FeatureRuns
from thresher.errors import ConfigError, FormatError

MAX_FEATURES = 2**31 - 1  # where runs and fields begin is int32
MAX_WIDTH = 65_536


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
    """A class that reads a stored form back.

    A form may come from a file anybody wrote. Whatever a lookup follows as an index is checked here, nothing of a
    claimed size is made before it is held against the tensors (`torch.device("meta")` and `put_tensors_` see to that),
    and what does not fit is a ValueError.
    """

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
    """The embedding a stored form describes, fit to look up and nothing else; it shares the form's tensors.

    Raises:
        FormatError: the form's method is not installed.
        ValueError: the form's parts contradict one another.
    """
    from thresher.embeddings.method_registry import registered_embeddings

    registered_embeddings()  # loads every method, and with it the kinds
    if form.kind not in _kinds:
        raise FormatError(
            f"a table of kind {form.kind!r} is of a method that is not installed; known: {', '.join(sorted(_kinds))}"
        )
    if not all(type(size) is int and size >= 0 for size in field_sizes):
        raise ValueError("field_sizes should be whole numbers of at least 0")
    if not 1 <= sum(field_sizes) <= MAX_FEATURES:
        raise ValueError(f"field_sizes sum to {sum(field_sizes)}, not to 1 … {MAX_FEATURES}")
    embedding = _kinds[form.kind].from_stored(field_sizes, form)
    if embedding.embedding_dim > MAX_WIDTH:
        raise ValueError(f"vectors of {embedding.embedding_dim} are wider than {MAX_WIDTH}")
    return embedding.eval().requires_grad_(False)


def whole_number(facts: Mapping[str, Any], name: str) -> int:
    """The fact of this name, if it is a whole number of at least 0."""
    value = facts[name]
    if type(value) is not int or value < 0:
        raise ValueError(f"{name} is {value!r}, not a whole number")
    return value


def whole_numbers(facts: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """The fact of this name, if it is a list of whole numbers of at least 0."""
    values = facts[name]
    if not isinstance(values, list | tuple) or not all(type(value) is int and value >= 0 for value in values):
        raise ValueError(f"{name} should be a list of whole numbers")
    return tuple(values)


def stored_runs(form: StoredForm, num_groups: int, num_features: int) -> FeatureRuns:
    """The runs of a form, checked; where the form tells `group_sizes`, they must be those of the runs."""
    starts, groups, rows = (form.tensors[f"run_{name}"].numpy() for name in ("starts", "groups", "rows"))
    runs = FeatureRuns.from_arrays(starts, groups, rows, num_groups=num_groups, num_features=num_features)
    if "group_sizes" in form.facts and whole_numbers(form.facts, "group_sizes") != runs.group_sizes:
        raise ValueError("group_sizes are not those of the runs")
    return runs


def check_shape(tensors: Mapping[str, Tensor], name: str, shape: Sequence[int]) -> None:
    """Raise ValueError unless the tensor is there and has this shape."""
    if name not in tensors or tuple(tensors[name].shape) != tuple(shape):
        found = f"of shape {list(tensors[name].shape)}" if name in tensors else "missing"
        raise ValueError(f"{name} is {found}; it should be of shape {list(shape)}")


def put_tensors_(embedding: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give a module built on the meta device the tensors of a form, without copying them."""
    expected: Mapping[str, Tensor] = embedding.state_dict()
    for name in tensors:
        if name not in expected:
            raise ValueError(f"{name!r} is no part of this method")
    fitting = {}
    for name, like in expected.items():
        check_shape(tensors, name, like.shape)
        both_floating = tensors[name].is_floating_point() and like.is_floating_point()
        if tensors[name].dtype != like.dtype and not both_floating:
            raise ValueError(f"{name} holds {tensors[name].dtype}, not {like.dtype}")
        fitting[name] = tensors[name].to(like.dtype)
    embedding.load_state_dict(fitting, assign=True)
