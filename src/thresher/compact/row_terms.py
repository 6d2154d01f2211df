"""What models compute first of the vectors of a row, from a compact table and without a dense array of vectors."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.compact.layouts import Layout
from thresher.compact.lookup import find_entries
from thresher.errors import OutsideTableError

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
RowTerms = Callable[[npt.NDArray[np.int64], Floats], tuple[Floats, Floats] | None]
"""(ids `[n, F]`, weight `[F · D, k]`) → FM terms `[n]` and the product of the vectors with `weight` `[n, k]`.

None if too many entries are kept, so that dense arrays are faster. A bad id raises `IndexError`.
"""

MAX_DENSITY = 0.1
"""Above this share of kept entries, dense arrays are faster."""
MAX_CELLS = 1 << 19  # numbers of a temporary array


def choose_row_terms(layout: Layout, arrays: Mapping[str, Array]) -> RowTerms:
    """The function for this table: the numba kernel, or its slower numpy twin if numba is not installed."""
    try:
        from thresher.kernels.compact_table import table_arrays
        from thresher.kernels.sparse_products import add_row_terms
    except ImportError:
        return partial(row_terms_by_numpy, layout, arrays)
    kernel_arrays = table_arrays(layout, arrays)

    def compute(ids: npt.NDArray[np.int64], weight: Floats) -> tuple[Floats, Floats] | None:
        terms, product = np.zeros(len(ids), np.float32), np.zeros((len(ids), weight.shape[1]), np.float32)
        max_nonzero = int(MAX_DENSITY * len(ids) * len(weight))
        bad = add_row_terms(kernel_arrays, ids, weight, max_nonzero, terms, product)
        _check(layout, ids, bad)
        return (terms, product) if bad == -1 else None

    return compute


def row_terms_by_numpy(
    layout: Layout, arrays: Mapping[str, Array], ids: npt.NDArray[np.int64], weight: Floats
) -> tuple[Floats, Floats] | None:
    """The numpy twin of `kernels.sparse_products.add_row_terms`."""
    num_rows, num_fields = ids.shape
    width = layout.embedding_dim
    places, columns, values, bad = find_entries(layout, arrays, ids.reshape(-1))
    _check(layout, ids, bad)
    if len(values) > MAX_DENSITY * len(ids) * len(weight):
        return None
    order = None if (places[1:] >= places[:-1]).all() else np.argsort(places, kind="stable")
    if order is not None:
        places, columns, values = places[order], columns[order], values[order]
    rows = places // num_fields
    total = np.bincount(rows * width + columns, values, num_rows * width).reshape(num_rows, width)  # float64
    squares = np.bincount(rows, values.astype(np.float64) ** 2, num_rows)
    terms = 0.5 * (np.einsum("nd,nd->n", total, total) - squares)
    bounds = np.searchsorted(rows, np.arange(num_rows + 1))
    most = max(int(np.diff(bounds).max(initial=0)), 1)
    places, rank = (places % num_fields) * width + columns, np.arange(len(rows)) - bounds[rows]
    product = np.empty((num_rows, weight.shape[1]), np.float32)
    step = max(MAX_CELLS // (most * max(weight.shape[1], 1)), 1)
    for first in range(0, num_rows, step):
        count, part = min(step, num_rows - first), slice(bounds[first], bounds[min(first + step, num_rows)])
        padded, factors = np.zeros((count, most), np.int64), np.zeros((count, 1, most), np.float32)
        padded[rows[part] - first, rank[part]] = places[part]
        factors[rows[part] - first, 0, rank[part]] = values[part]
        product[first : first + count] = (factors @ weight[padded])[:, 0]
    return terms.astype(np.float32), product


def _check(layout: Layout, ids: npt.NDArray[np.int64], bad: int) -> None:
    if bad >= 0:
        raise OutsideTableError.of(int(ids.reshape(-1)[bad]), layout.num_features)
