"""Asking memory for a row before it is needed: rows of a batch lie far apart, and waiting for them is what costs."""

from thresher.kernels.bit_vectors import prefetch
from thresher.kernels.parallel import serial_kernel

AHEAD = 4  # rows; fewer leave waiting, more fall out of the first cache
_NUMBERS_PER_LINE = 16  # of memory; narrow rows are done with sooner, so they are asked for earlier


@serial_kernel
def prefetch_row(table, rows, i):  # type: ignore[no-untyped-def]
    """Prefetch the row of `table` (contiguous, 4 bytes a number) that comes some places after `rows[i]`."""
    width = table.shape[1]
    ahead = AHEAD + _NUMBERS_PER_LINE // max(width, 1)
    start = rows[min(i + ahead, rows.shape[0] - 1)] * width
    for entry in range(start, start + width, _NUMBERS_PER_LINE):
        prefetch(table, entry)
