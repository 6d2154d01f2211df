"""Products of rows that are mostly zero, such as the vectors of a pruned table, with a matrix. Works without torch.

The plain form is `inputs @ weight`. `add_row_terms` never has the vectors of more than one row.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.compact_table import look_up_rows
from thresher.kernels.compiling import kernel

MAX_DENSITY = 0.15
"""Above this share of entries that are not 0, the dense product of BLAS is faster."""


@kernel
def multiply_nonzero(inputs: Any, weight: Any, max_nonzero: Any, out: Any) -> Any:
    """Add `inputs [n, m] @ weight [m, k]` to `out`; false, and nothing is added, if too many inputs are not 0."""
    num_nonzero = 0
    for row in range(inputs.shape[0]):
        for place in range(inputs.shape[1]):
            num_nonzero += inputs[row, place] != 0
    if num_nonzero > max_nonzero:
        return False
    for row in range(inputs.shape[0]):
        for place in range(inputs.shape[1]):
            value = inputs[row, place]
            if value != 0:
                for column in range(weight.shape[1]):
                    out[row, column] += value * weight[place, column]
    return True


def sparse_product(inputs: npt.NDArray[np.float32], weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """`inputs @ weight` `[n, k]`, both contiguous."""
    out = np.zeros((inputs.shape[0], weight.shape[1]), np.float32)
    return out if multiply_nonzero(inputs, weight, int(MAX_DENSITY * inputs.size), out) else inputs @ weight


@kernel
def add_row_terms(table: Any, ids: Any, weight: Any, max_nonzero: Any, terms: Any, product: Any) -> Any:
    """The FM term of the vectors of each row, and their product with a matrix: both are added to zeroed arrays.

    `ids [n, F]`, `weight [F · D, k]`, `terms [n]`, `product [n, k]`. Returns −1, the place of the first id outside the
    table, or −2 if more than `max_nonzero` entries are not 0; then the results are not complete.
    """
    num_rows, num_fields = ids.shape
    width = weight.shape[0] // num_fields
    size = num_fields * width
    entries = np.zeros((size + 7) // 8 * 8, np.float32)
    vectors = entries[:size].reshape(num_fields, width)
    words = entries.view(np.uint64)  # two entries each
    total, squares = np.empty(width, np.float32), np.empty(width, np.float32)
    no_bags, num_nonzero = np.zeros(0, np.int64), 0
    for row in range(num_rows):
        bad = look_up_rows(table, ids[row], no_bags, False, vectors)
        if bad >= 0:
            return row * num_fields + bad
        total[:] = 0
        squares[:] = 0
        for block in range(len(words) // 4):
            if words[4 * block] | words[4 * block + 1] | words[4 * block + 2] | words[4 * block + 3] == 0:
                continue
            for place in range(8 * block, 8 * block + 8):
                value = entries[place]
                if value != 0:
                    num_nonzero += 1
                    total[place % width] += value
                    squares[place % width] += value * value
                    for column in range(weight.shape[1]):
                        product[row, column] += value * weight[place, column]
        if num_nonzero > max_nonzero:
            return -2
        for column in range(width):
            terms[row] += np.float32(0.5) * (total[column] * total[column] - squares[column])
    return -1
