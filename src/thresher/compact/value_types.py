"""How the kept values themselves are stored: as floats of 4 or 2 bytes, or as 8- or 4-bit codes times a scale.

int8 and int4 share one float32 scale per block of consecutive values; a code is a whole number in −127 … 127 or
−7 … 7. Pure numpy. Where a value belongs is the layout's business.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Values: TypeAlias = npt.NDArray[np.float32]
Codes: TypeAlias = npt.NDArray[np.int8]
ValueType = Literal["fp32", "fp16", "bf16", "int8", "int4"]

VALUE_TYPES: tuple[ValueType, ...] = ("fp32", "fp16", "bf16", "int8", "int4")
DTYPES: dict[str, type[np.generic]] = {
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": np.uint16,
    "int8": np.int8,
    "int4": np.uint8,
}
SCALE_BLOCK = {"int8": 64, "int4": 32}
"""Values that share a scale; a power of two, so that the kernel finds it by a shift."""
MAX_CODE = {"int8": 127, "int4": 7}


@dataclass(frozen=True)
class Quantised:
    """Codes `[K]` and the scale of each block: what quantisation-aware training ends with."""

    codes: Codes
    scales: Values

    def values(self, value_type: ValueType) -> Values:
        return self.codes * _per_value(self.scales, len(self.codes), value_type)


def is_quantised(value_type: ValueType) -> bool:
    return value_type in SCALE_BLOCK


def value_arrays(value_type: ValueType, num_values: int) -> dict[str, tuple[type[np.generic], int]]:
    """Names, types and lengths of the arrays that hold so many values."""
    length = (num_values + 1) // 2 if value_type == "int4" else num_values
    arrays: dict[str, tuple[type[np.generic], int]] = {"values": (DTYPES[value_type], length)}
    if is_quantised(value_type):
        arrays["scales"] = (np.float32, num_scales(value_type, num_values))
    return arrays


def num_scales(value_type: ValueType, num_values: int) -> int:
    return -(-num_values // SCALE_BLOCK[value_type])


def pack_values(values: Values, value_type: ValueType) -> dict[str, Array]:
    """Values `[K]` in their stored form, rounded to the nearest."""
    match value_type:
        case "fp32":
            return {"values": np.ascontiguousarray(values, np.float32)}
        case "fp16":
            _check_finite(values, value_type)  # the kernels would read NaN as a number
            largest = float(np.abs(values).max(initial=0))
            if largest > 65504:
                raise ValueError(f"a value of {largest:g} does not fit fp16, which ends at 65504; store it as bf16")
            return {"values": values.astype(np.float16)}
        case "bf16":
            bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
            nearest_even = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
            return {"values": nearest_even.astype(np.uint16)}
        case "int8" | "int4":
            return pack_codes(quantise(values, value_type), value_type)


def pack_codes(quantised: Quantised, value_type: ValueType) -> dict[str, Array]:
    codes, scales = quantised.codes, np.ascontiguousarray(quantised.scales, np.float32)
    if value_type == "int8":
        return {"values": np.ascontiguousarray(codes, np.int8), "scales": scales}
    nibbles = np.zeros(len(codes) + len(codes) % 2, np.uint8)
    nibbles[: len(codes)] = codes + 8
    return {"values": nibbles[::2] | (nibbles[1::2] << 4), "scales": scales}


def unpack_values(arrays: Mapping[str, Array], value_type: ValueType, num_values: int) -> Values:
    """The stored values `[K]` as float32."""
    stored = arrays["values"]
    match value_type:
        case "fp32":
            return np.array(stored)
        case "fp16":
            return stored.astype(np.float32)
        case "bf16":
            return (stored.astype(np.uint32) << 16).view(np.float32)
        case "int8" | "int4":
            return Quantised(unpack_codes(stored, value_type, num_values), arrays["scales"]).values(value_type)


def unpack_codes(stored: Array, value_type: ValueType, num_values: int) -> Codes:
    if value_type == "int8":
        return np.array(stored)
    nibbles = np.stack([stored & 15, stored >> 4], axis=1).reshape(-1)[:num_values]
    return nibbles.astype(np.int8) - np.int8(8)


def quantise(values: Values, value_type: ValueType) -> Quantised:
    """Codes and scales with the least squared error per block, over a grid of scales.

    The widest scale maps the largest value to the largest code. Narrower ones clip it and resolve the others
    better, which pays at 4 bits.
    """
    _check_finite(values, value_type)
    block, most = SCALE_BLOCK[value_type], MAX_CODE[value_type]
    padded = np.zeros((num_scales(value_type, len(values)), block), np.float32)
    padded.reshape(-1)[: len(values)] = values
    widest = np.abs(padded).max(axis=1, initial=0) / most
    best, least = widest, np.full(len(widest), np.inf, np.float32)
    for share in np.linspace(1.0, 0.6, 9 if value_type == "int4" else 1, dtype=np.float32):
        scales = widest * share
        error = np.square(padded - _to_codes(padded, scales[:, None], most) * scales[:, None]).sum(axis=1)
        best, least = np.where(error < least, scales, best), np.minimum(error, least)
    codes = _to_codes(padded, best[:, None], most).astype(np.int8).reshape(-1)[: len(values)]
    return Quantised(codes, best.astype(np.float32))


def _to_codes(values: Array, scales: Array, most: int) -> Array:
    return np.clip(np.rint(values / np.where(scales > 0, scales, 1)), -most, most)


def _per_value(scales: Values, num_values: int, value_type: ValueType) -> Values:
    return np.repeat(scales, SCALE_BLOCK[value_type])[:num_values]


def _check_finite(values: Values, value_type: ValueType) -> None:
    if not np.isfinite(values).all():
        raise ValueError(f"some values are not finite; they cannot be stored as {value_type}")
