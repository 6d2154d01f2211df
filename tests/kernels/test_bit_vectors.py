import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thresher.compact.bits import pack_bits, rank_blocks, select_samples
from thresher.kernels.bit_vectors import bit, next_one, rank, select


@given(st.integers(1, 3000), st.sampled_from([0.001, 0.05, 0.5, 1.0]), st.integers(0, 2**16))
def test_rank_select_and_next_one_are_what_counting_gives(num_bits, density, seed):
    flags = np.random.default_rng(seed).random(num_bits) < density
    flags[-1] = True
    ones = np.flatnonzero(flags)
    words = pack_bits(ones, num_bits)
    blocks, samples = rank_blocks(words, num_bits), select_samples(ones)
    for position in {0, 1, num_bits // 2, num_bits - 1, num_bits}:
        assert rank(words, blocks, position) == flags[:position].sum()
    for index in {0, len(ones) // 3, len(ones) - 1}:
        assert select(words, samples, index) == ones[index]
    for position in {0, num_bits // 2, num_bits - 1}:
        assert next_one(words, position) == ones[np.searchsorted(ones, position)]
        assert bit(words, position) == flags[position]
