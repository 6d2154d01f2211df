"""CPU kernels (numba), each beside a plain-torch equivalent."""
