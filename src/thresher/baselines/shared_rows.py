"""Common parts of the methods in `hashing`: rows per field, ways to combine rows, and the stored form."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from thresher._internal.settings import config_from_mapping, config_to_mapping
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding, new_table
from thresher.embeddings.stored_form import StoredForm, check_shape, put_tensors_
from thresher.errors import ConfigError

Combine = Literal["add", "multiply", "concatenate"]


@dataclass(frozen=True, kw_only=True)
class SharedRowsConfig(EmbeddingConfig):
    """Settings of all methods that share rows."""

    budget_setting: ClassVar[str] = "num_buckets"
    num_buckets: int = 10_000
    """Rows for all fields together, which a budget lowers. Every field gets the same maximum; small fields keep all
    their rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_buckets < 1:
            raise ConfigError(f"num_buckets is {self.num_buckets}; it must be at least 1")

    def budget_values(self, field_sizes: Sequence[int]) -> Sequence[int]:
        return range(len(field_sizes), sum(field_sizes) + 1)


class SharedRows(FieldEmbedding):
    """Base of the three methods; the stored form is the whole `state_dict`."""

    config_type: ClassVar[type[SharedRowsConfig]]
    config: EmbeddingConfig

    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def storage_bytes(self) -> int:
        """Rows, hash functions and field offsets: the whole state."""
        return sum(tensor.nbytes for tensor in self.state_dict().values())

    def to_stored(self) -> StoredForm:
        metadata = {"config": config_to_mapping(self.config), **self._metadata()}
        return StoredForm(type(self).__name__, self.state_dict(), metadata)

    def _metadata(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_stored(cls, field_sizes: Sequence[int], form: StoredForm) -> Self:
        if not isinstance(form.metadata["config"], Mapping):
            raise ValueError("config is not a mapping")
        config = config_from_mapping(cls.config_type, form.metadata["config"], where="stored form")
        with torch.device("meta"):  # the file may claim any size
            embedding = cls._from_form(field_sizes, config, form)
        for name, rows in embedding.named_children():
            if isinstance(rows, FieldRows):
                rows.check(form.tensors, name)
        put_tensors_(embedding, form.tensors)
        return embedding

    @classmethod
    def _from_form(cls, field_sizes: Sequence[int], config: Any, form: StoredForm) -> Self:
        return cls(field_sizes, config)


class FieldRows(nn.Module):
    """First feature id, number of rows and first row of each field: int32 `[F]` each."""

    first_id: Tensor
    num_rows: Tensor
    first_row: Tensor
    whole: Tensor  # bool [F]: the field has a row for each of its features

    def __init__(self, field_sizes: Sequence[int], num_rows: Sequence[int]) -> None:
        super().__init__()
        for name, array in (
            ("first_id", np.cumsum([0, *field_sizes[:-1]])),
            ("num_rows", np.asarray(num_rows)),
            ("first_row", np.cumsum([0, *num_rows[:-1]])),
        ):
            self.register_buffer(name, torch.from_numpy(array.astype(np.int32)))
        whole = torch.from_numpy(np.asarray(num_rows) >= np.asarray(field_sizes))
        self.register_buffer("whole", whole, persistent=False)

    def check(self, tensors: Mapping[str, Tensor], name: str) -> None:
        """Raise ValueError unless the tensors stored under `name` are equal to these."""
        for key, expected in self.state_dict(prefix=f"{name}.").items():
            check_shape(tensors, key, expected.shape)
            if not torch.equal(tensors[key], expected):
                raise ValueError(f"{key} does not match the settings and the fields")

    def split(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Ids `[...]` → field and local id of each, both int64 `[...]`."""
        ids = ids.long().contiguous()
        field = torch.searchsorted(self.first_id.long(), ids, right=True) - 1
        return field, ids - self.first_id[field]


def capped_sizes(field_sizes: Sequence[int], num_buckets: int) -> list[int]:
    """Rows per field, `min(size, cap)`, with the largest cap that keeps their sum within `num_buckets`.

    >>> capped_sizes([3, 100, 10], num_buckets=30)
    [3, 17, 10]
    """
    cap, left = 1, 0
    for place, size in enumerate(sorted(field_sizes)):
        cap = max(1, min(size, (num_buckets - left) // (len(field_sizes) - place)))
        if cap < size:
            break
        left += size
    return [min(size, cap) for size in field_sizes]


def combine(pieces: Sequence[Tensor], how: Combine) -> Tensor:
    """Rows `[..., d]` each → one vector `[..., D]`."""
    if how == "concatenate":
        return torch.cat(list(pieces), dim=-1)
    vector = pieces[0]
    for piece in pieces[1:]:
        vector = vector + piece if how == "add" else vector * piece
    return vector


def new_factor(num_rows: int, width: int, num_factors: int = 1) -> nn.Parameter:
    """A fresh table; the product of `num_factors` of its rows is as large as a row of a plain table."""
    if num_rows == 0:
        return nn.Parameter(torch.empty(0, width))
    table = new_table(num_rows, width)
    with torch.no_grad():
        table.copy_(table.sign() * table.abs() ** (1 / num_factors))
    return table


def check_pieces(embedding_dim: int, num_pieces: int, how: Combine) -> None:
    if num_pieces < 1:
        raise ConfigError(f"num_hashes is {num_pieces}; it must be at least 1")
    if how == "concatenate" and embedding_dim % num_pieces:
        raise ConfigError(f"embedding_dim {embedding_dim} cannot be cut into {num_pieces} equal pieces to concatenate")
