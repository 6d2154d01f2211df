"""Bit vectors with rank and select: the building stone of compact layouts. Pure numpy; the kernels have their own.

A bit vector is little-endian 64-bit words. *rank(p)* counts the ones before bit `p`; a uint32 count per block of 256
bits makes it constant time. *select(j)* finds the j-th one; a uint32 position per 32 ones makes it a short scan.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK_BITS = 256  # one uint32 of rank support per block: an eighth on top of the bits
SELECT_STRIDE = 32  # one uint32 of select support per so many ones

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.int64]


def pack_bits(positions: npt.NDArray[Any], num_bits: int) -> Words:
    """The words of a bit vector whose ones are at these distinct positions."""
    words = np.zeros(num_words(num_bits), np.uint64)
    np.bitwise_or.at(words, positions >> 6, np.uint64(1) << (positions & 63).astype(np.uint64))
    return words


def unpack_bits(words: Words) -> Positions:
    """Positions of the ones, ascending."""
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).astype(np.int64, copy=False)


def rank_blocks(words: Words, num_bits: int) -> Counts:
    """Ones before each block of 256 bits; the last count serves positions up to the very end."""
    before = np.zeros(len(words) + 1, np.int64)
    np.cumsum(np.bitwise_count(words), out=before[1:], dtype=np.int64)
    at_blocks: Counts = before[:: BLOCK_BITS // 64][: num_blocks(num_bits)].astype(np.uint32)
    return at_blocks


def select_samples(positions: npt.NDArray[Any]) -> Counts:
    """Position of every 32nd one, given all of them in ascending order."""
    return positions[::SELECT_STRIDE].astype(np.uint32)


def num_words(num_bits: int) -> int:
    return -(-num_bits // 64)


def num_blocks(num_bits: int) -> int:
    return num_bits // BLOCK_BITS + 1


def num_samples(num_ones: int) -> int:
    return -(-num_ones // SELECT_STRIDE)
