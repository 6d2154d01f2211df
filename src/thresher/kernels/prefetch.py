"""Asking memory for a row before it is needed: rows of a batch lie far apart, and waiting for them is what costs."""

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from thresher.kernels.parallel import serial_kernel

AHEAD = 4  # rows; fewer leave waiting, more fall out of the first cache
_NUMBERS_PER_LINE = 16


@intrinsic
def _prefetch_entry(typingctx, table, entry):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        array = context.make_array(signature.args[0])(context, builder, args[0])
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), kind)
        place = builder.bitcast(builder.gep(array.data, [args[1]]), pointer)
        builder.call(function, [place, number(0), number(3), number(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(table, types.intp), codegen


_prefetch: Any = _prefetch_entry


@serial_kernel
def prefetch_row(table, rows, i):  # type: ignore[no-untyped-def]
    """Prefetch the row of `table` (contiguous, 4 bytes a number) that comes `AHEAD` places after `rows[i]`."""
    width = table.shape[1]
    start = rows[min(i + AHEAD, rows.shape[0] - 1)] * width
    for entry in range(start, start + width, _NUMBERS_PER_LINE):
        _prefetch(table, entry)
