"""The vectors of a batch, stored once per distinct feature, so that projections multiply each of them once.

1,024 rows of MovieLens-1M have 7,168 ids but about 1,200 distinct features. Results equal those of one vector per id
up to rounding. Layers with hooks, pruning, parametrizations or another class get one vector per id, as usual.
`CtrModel.distinct_vectors` decides which batches use this form.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from thresher.kernels.distinct import DistinctIds
from thresher.kernels.interactions import fm_from_rows, join_rows
from thresher.kernels.rows import expand_rows


@dataclass(frozen=True, eq=False)
class DistinctVectors:
    """Vectors `[B, F, D]` as distinct rows and their positions.

    Attributes:
        rows: `[U, D]`, ordered by id.
        distinct: the ids and their positions `[B, F]`; an omitted id has a vector of zeros.
        field_sizes: features per field.
    """

    rows: Tensor
    distinct: DistinctIds
    field_sizes: Sequence[int]

    def expand(self) -> Tensor:
        """One vector per id, `[B, F, D]`."""
        return expand_rows(self.rows, self.distinct)

    def project(self, layer: nn.Linear) -> Tensor:
        """Apply a layer to every vector, `[B, F, A]`."""
        if not (is_unmodified(layer, nn.Linear) and layer.bias is None):  # omitted vectors would miss the bias
            projected: Tensor = layer(self.expand())
            return projected
        return expand_rows(layer(self.rows), self.distinct)

    def project_concatenated(self, weight: Tensor) -> Tensor | None:
        """`W · (v_1, …, v_F)` for the concatenated vectors of a row, as `Σ_f W_f v_f`: `W` `[H, F·D]` → `[B, H]`.

        None if a column contains ids of another field, which encoded rows never do.
        """
        bounds = self._field_bounds()
        if not self._columns_match_fields(bounds):
            return None
        by_field = torch.split(self.rows, bounds.diff().tolist())  # F times [U_f, D]
        weights = weight.view(len(weight), len(by_field), -1).unbind(1)  # F times [H, D]
        products = [rows @ field_weight.T for rows, field_weight in zip(by_field, weights, strict=True)]
        return join_rows(torch.cat(products), self.distinct)

    def fm_term(self) -> Tensor:
        """Sum of the dot products of all pairs of fields, `[B]`."""
        return fm_from_rows(self.rows, self.distinct)

    def _field_bounds(self) -> Tensor:
        """First row of each field, and the end of the last one: `[F + 1]`."""
        ids = torch.tensor(list(accumulate(self.field_sizes, initial=0)))
        return torch.searchsorted(self.distinct.ids, ids)

    def _columns_match_fields(self, bounds: Tensor) -> bool:
        places = self.distinct.places
        inside = (places >= bounds[:-1]) & (places < bounds[1:])
        return bool((inside | (places == self.distinct.num_ids)).all())


def takes_distinct(block: nn.Module | None) -> bool:
    """Whether a block accepts `DistinctVectors` and has no hooks.

    A block declares it by the class attribute `reads_distinct_vectors`, which subclasses do not inherit.
    """
    if block is None:
        return True
    if is_unmodified(block, nn.Sequential):
        first = next(block.children(), None)
        return first is not None and takes_distinct(first)
    return "reads_distinct_vectors" in vars(type(block)) and not has_hooks(block)


def is_unmodified(module: nn.Module, expected: type[nn.Module]) -> bool:
    """Whether a module is exactly of this class, without hooks; pruning and parametrizations change one of them."""
    return type(module) is expected and not has_hooks(module)


def has_hooks(module: nn.Module) -> bool:
    return any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks))
