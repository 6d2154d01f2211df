"""MethodTable: a trained embedding with parts of its own (codes, projections, hashes) as one file, to look up from.

The counterpart of `CompactTable` for methods that share or project rows instead of leaving entries out. Frozen; its
arrays are what the method itself says a lookup needs. One safetensors file, without pickle.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from thresher._internal.files import atomic_file
from thresher.compact.convert import has_compact_form, to_compact
from thresher.compact.file import FORMAT as COMPACT_FORMAT
from thresher.compact.file import checksum, map_safetensors, order_metadata_
from thresher.compact.stored import StoredEmbedding
from thresher.compact.table import CompactTable, OutOfRange
from thresher.embeddings.base import FieldEmbedding
from thresher.embeddings.stored_form import Storable, StoredForm, build_stored
from thresher.errors import ConfigError, FormatError

FORMAT = "thresher.method-table"
VERSION = 1
UNFIT = (ConfigError, LookupError, TypeError, ValueError, RuntimeError, ArithmeticError, AttributeError)
"""What building from parts that do not fit may raise, in a method's own words or in those of torch."""


class MethodTable:
    """A stored form and the embedding it describes, which reads the form's own tensors."""

    def __init__(self, field_sizes: Sequence[int], form: StoredForm) -> None:
        self.form = form
        self._embedding = build_stored(field_sizes, form)

    @classmethod
    def of(cls, embedding: FieldEmbedding) -> "MethodTable":
        assert isinstance(embedding, Storable)
        form = embedding.to_stored()
        tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in form.tensors.items()}
        return cls(embedding.field_sizes, StoredForm(form.kind, tensors, form.metadata))

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_features, self.embedding_dim

    @property
    def num_features(self) -> int:
        return self._embedding.num_features

    @property
    def embedding_dim(self) -> int:
        return self._embedding.embedding_dim

    @property
    def num_parameters(self) -> int:
        return self._embedding.num_parameters()

    @property
    def storage_bytes(self) -> int:
        """Bytes of all arrays: everything a lookup reads."""
        return sum(tensor.nbytes for tensor in self.form.tensors.values())

    @torch.no_grad()
    def lookup(self, ids: Tensor, *, out_of_range: OutOfRange = "error") -> Tensor:
        """Vectors `[..., D]` of ids `[...]`.

        Args:
            ids: feature ids.
            out_of_range: whether an id outside the table is an `IndexError` or a vector of zeros.
        """
        outside = (ids < 0) | (ids >= self.num_features)
        if not bool(outside.any()):
            vectors: Tensor = self._embedding(ids)
            return vectors
        if out_of_range == "error":
            raise IndexError(f"id {int(ids[outside][0])} is outside a table of {self.num_features} rows")
        inside: Tensor = self._embedding(ids.masked_fill(outside, 0))
        return inside.masked_fill(outside[..., None], 0.0)

    def save(self, path: str | Path) -> None:
        tensors = dict(self.form.tensors)
        about = {"kind": self.form.kind, "field_sizes": self._embedding.field_sizes, "facts": dict(self.form.metadata)}
        metadata = {
            "format": FORMAT,
            "version": str(VERSION),
            "method": json.dumps(about),
            "sha256": checksum({name: tensor.numpy() for name, tensor in tensors.items()}),
        }
        with atomic_file(Path(path)) as beside:
            save_file(tensors, beside, metadata)
            order_metadata_(beside)

    @classmethod
    def load(cls, path: str | Path, *, verify: bool = True) -> "MethodTable":
        """Open a saved table, memory-mapped; a damaged file, or one whose parts contradict one another, is refused.

        Args:
            path: a file `save` wrote.
            verify: compare the checksum, which reads the whole file once; the form is checked in any case.
        """
        metadata, arrays = map_safetensors(Path(path), private=True)
        if metadata.get("format") != FORMAT or metadata.get("version") != str(VERSION):
            raise FormatError(
                f"{path}: {metadata.get('format')!r} version {metadata.get('version')!r} is no table this "
                f"release reads ({FORMAT!r} version {VERSION}); upgrade thresher"
            )
        if verify and metadata.get("sha256") != checksum(arrays):
            raise FormatError(f"{path}: damaged: its checksum is not the one it was written with; export it again")
        try:
            about = json.loads(metadata["method"])
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            return cls(about["field_sizes"], StoredForm(about["kind"], tensors, about["facts"]))
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from error
        except UNFIT as error:
            raise FormatError(f"{path}: its parts do not fit together ({error}); export it again") from error

    def __repr__(self) -> str:
        N, D = self.shape
        return (
            f"MethodTable([{N}, {D}], {self.form.kind}, {self.num_parameters} parameters, {self.storage_bytes} bytes)"
        )


AnyTable = CompactTable | MethodTable


def to_table(embedding: nn.Module) -> AnyTable:
    """What a bundle keeps of an embedding: its compact table, or its method's own form."""
    if isinstance(embedding, StoredEmbedding):
        return embedding.table
    if isinstance(embedding, FieldEmbedding) and not has_compact_form(embedding) and isinstance(embedding, Storable):
        return MethodTable.of(embedding)
    return to_compact(embedding)


def has_table(module: nn.Module) -> bool:
    """Whether `to_table` knows this kind of module."""
    return has_compact_form(module) or (isinstance(module, FieldEmbedding) and isinstance(module, Storable))


def load_any_table(path: Path, *, verify: bool = True) -> AnyTable:
    """Open a table of either kind, as its file says."""
    metadata: Mapping[str, str] = map_safetensors(path)[0]
    if metadata.get("format") == COMPACT_FORMAT:
        return CompactTable.load(path, verify=verify)
    return MethodTable.load(path, verify=verify)
