"""Products of rows that are mostly zero, such as the vectors of a pruned table, with a matrix.

The plain form is `inputs @ weight`. Works without torch.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

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
