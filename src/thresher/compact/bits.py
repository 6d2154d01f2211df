"""Bit vectors with rank and select: the building stone of compact layouts. Pure numpy; the kernels have their own.

A bit vector is little-endian 64-bit words. *rank(p)* counts the ones before bit `p`; a uint32 count per block of 512
bits makes it constant time. *select(j)* finds the j-th one; a uint32 position per 32 ones makes it a short scan.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK_BITS = 512  # one uint32 of rank support per block: 0.8 % on top of the bits
SELECT_STRIDE = 32  # one uint32 of select support per so many ones

Words = npt.NDArray[np.uint64]
Counts = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.int64]


def pack_bits(positions: npt.NDArray[Any], num_bits: int) -> Words:
    """The words of a bit vector whose ones are at these (distinct) positions."""
    words = np.zeros(-(-num_bits // 64), np.uint64)
    np.bitwise_or.at(words, positions >> 6, np.uint64(1) << (positions & 63).astype(np.uint64))
    return words


def unpack_bits(words: Words) -> Positions:
    """Positions of the ones, ascending."""
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).astype(np.int64, copy=False)


def rank_blocks(words: Words) -> Counts:
    """Ones before each block of 512 bits."""
    per_word = np.bitwise_count(words).astype(np.int64)
    per_block = np.add.reduceat(per_word, np.arange(0, len(words), BLOCK_BITS // 64)) if len(words) else per_word
    before: Counts = (np.cumsum(per_block) - per_block).astype(np.uint32)
    return before


def select_samples(positions: npt.NDArray[Any]) -> Counts:
    """Position of every 32nd one, given all of them in ascending order."""
    return positions[::SELECT_STRIDE].astype(np.uint32)


def bit_vector_bytes(num_bits: int) -> int:
    return 8 * -(-num_bits // 64)


def rank_bytes(num_bits: int) -> int:
    return 4 * -(-num_bits // BLOCK_BITS)


def select_bytes(num_ones: int) -> int:
    return 4 * -(-num_ones // SELECT_STRIDE)
