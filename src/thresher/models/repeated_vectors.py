"""The vectors of a batch, each distinct one held once: what a layer does to a vector by itself, it does once, too.

1,024 rows of MovieLens-1M have 7,168 places and some 1,200 distinct features. Projections multiply those alone, and
their results are spread to the places; the numbers are the same but for rounding. Not here: which batches come this way
(`CtrModel.repeated_vectors`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from thresher.kernels.distinct import DistinctIds


@dataclass(frozen=True, eq=False)
class RepeatedVectors:
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
        """The layer, which has no bias, applied to every vector: `[B, F, A]`."""
        from thresher.kernels.rows import expand_rows

        return expand_rows(layer(self.rows), self.distinct)

    def joined(self, weight: Tensor) -> Tensor:
        """`W · (v_1, …, v_F)`, all vectors of a row end to end, as `Σ_f W_f v_f`: `W` `[H, F·D]` → `[B, H]`."""
        from thresher.kernels.joined import join_rows

        bounds = self._field_bounds()
        if not self._in_own_columns(bounds):
            return functional.linear(self.spread().flatten(1), weight)
        by_field = torch.split(self.rows, bounds.diff().tolist())  # F times [U_f, D]
        weights = weight.view(len(weight), len(by_field), -1).unbind(1)  # F times [H, D]
        products = [rows @ of_field.T for rows, of_field in zip(by_field, weights, strict=True)]
        return join_rows(torch.cat(products), self.distinct)

    def pairs(self) -> Tensor:
        """The sum of the dot products of all pairs of fields, `[B]`."""
        from thresher.kernels.fm import fm_from_rows

        return fm_from_rows(self.rows, self.distinct)

    def _field_bounds(self) -> Tensor:
        """The first row of each field, and where the last one ends: `[F + 1]`."""
        ids = torch.tensor(list(accumulate(self.field_sizes, initial=0)))
        return torch.searchsorted(self.distinct.ids, ids)

    def _in_own_columns(self, bounds: Tensor) -> bool:
        """Whether column `f` holds features of field `f` alone, as encoded rows do; nothing keeps a caller to it."""
        places = self.distinct.places
        inside = (places >= bounds[:-1]) & (places < bounds[1:])
        return bool((inside | (places == self.distinct.num_ids)).all())
