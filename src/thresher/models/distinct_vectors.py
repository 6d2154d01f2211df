"""The vectors of a batch, each distinct one held once: what a layer does to a vector by itself, it does once, too.

1,024 rows of MovieLens-1M have 7,168 places and some 1,200 distinct features. Projections multiply those alone, and
their results are spread to the places; the numbers are the same but for rounding.

Whoever changes a model must not notice: a layer that is hooked, pruned, wrapped or replaced is called as ever, on a
vector per place. Not here: which batches come this way (`CtrModel.distinct_vectors`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from thresher.kernels.distinct import DistinctIds

BlockT = TypeVar("BlockT", bound=type[nn.Module])

_READERS: set[type[nn.Module]] = set()


@dataclass(frozen=True, eq=False)
class DistinctVectors:
    """Vectors `[B, F, D]` as distinct rows and where each of them stands.

    Attributes:
        rows: `[U, D]`, in the order of their ids.
        distinct: the ids and their places `[B, F]`; a place whose id was left out has a vector of zeros.
        field_sizes: features of each field, which are the ids one after the other.
    """

    rows: Tensor
    distinct: "DistinctIds"
    field_sizes: Sequence[int]

    def spread(self) -> Tensor:
        """A vector per place, `[B, F, D]`."""
        from thresher.kernels.rows import expand_rows

        return expand_rows(self.rows, self.distinct)

    def projected(self, layer: nn.Linear) -> Tensor:
        """The layer applied to every vector, `[B, F, A]`."""
        from thresher.kernels.rows import expand_rows

        if not (is_untouched(layer, nn.Linear) and layer.bias is None):  # vectors left out would miss a bias
            projected: Tensor = layer(self.spread())
            return projected
        return expand_rows(layer(self.rows), self.distinct)

    def joined(self, weight: Tensor) -> Tensor | None:
        """`W · (v_1, …, v_F)`, all vectors of a row end to end, as `Σ_f W_f v_f`: `W` `[H, F·D]` → `[B, H]`.

        None where a column holds features of other fields: nothing keeps a caller to the columns of encoded rows.
        """
        from thresher.kernels.row_sums import join_rows

        bounds = self._field_bounds()
        if not self._in_own_columns(bounds):
            return None
        by_field = torch.split(self.rows, bounds.diff().tolist())  # F times [U_f, D]
        weights = weight.view(len(weight), len(by_field), -1).unbind(1)  # F times [H, D]
        products = [rows @ of_field.T for rows, of_field in zip(by_field, weights, strict=True)]
        return join_rows(torch.cat(products), self.distinct)

    def pairs(self) -> Tensor:
        """The sum of the dot products of all pairs of fields, `[B]`."""
        from thresher.kernels.row_sums import fm_from_rows

        return fm_from_rows(self.rows, self.distinct)

    def _field_bounds(self) -> Tensor:
        """The first row of each field, and where the last one ends: `[F + 1]`."""
        ids = torch.tensor(list(accumulate(self.field_sizes, initial=0)))
        return torch.searchsorted(self.distinct.ids, ids)

    def _in_own_columns(self, bounds: Tensor) -> bool:
        places = self.distinct.places
        inside = (places >= bounds[:-1]) & (places < bounds[1:])
        return bool((inside | (places == self.distinct.num_ids)).all())


def reads_distinct(block: BlockT) -> BlockT:
    """Declare that a block's `forward` takes `DistinctVectors` in place of vectors `[B, F, D]`; subclasses do not."""
    _READERS.add(block)
    return block


def takes_distinct(block: nn.Module | None) -> bool:
    """Whether a block can be handed `DistinctVectors`, and nobody looks at what it is handed."""
    if block is None:
        return True
    if is_untouched(block, nn.Sequential):
        first = next(block.children(), None)
        return first is not None and takes_distinct(first)  # an empty one would hand them on
    return type(block) in _READERS and not has_hooks(block)


def is_untouched(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a module is just of this class, without hooks: pruning, norms of weights and adapters leave traces."""
    return type(module) is kind and not has_hooks(module)


def has_hooks(module: nn.Module) -> bool:
    return any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks))
