"""Seeds of all random generators, and their state as tensors, from which a run resumes exactly."""

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def derive_seed(seed: int, *names: str | int) -> int:
    """A seed for one purpose, e.g. `derive_seed(seed, "batches")`; streams of different names are independent.

    >>> derive_seed(0, "batches") == derive_seed(0, "batches"), derive_seed(0, "batches") == derive_seed(1, "batches")
    (True, False)
    """
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1  # 63 bits fit everywhere


def seed_all(seed: int) -> None:
    """Seed python's, numpy's and torch's (all devices') global generators."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def capture_rng_state() -> dict[str, Tensor]:
    """The state of all global generators; `restore_rng_state` takes it back."""
    _, keys, gauss_next = random.getstate()
    _, numpy_keys, position, has_gauss, cached = np.random.get_state()
    state = {
        "python": torch.tensor(keys, dtype=torch.int64),
        "python_gauss": torch.tensor([] if gauss_next is None else [gauss_next], dtype=torch.float64),
        "numpy": torch.tensor([*np.asarray(numpy_keys).tolist(), int(position)], dtype=torch.int64),
        "numpy_gauss": torch.tensor([cached] if has_gauss else [], dtype=torch.float64),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state |= {f"cuda{k}": device_state for k, device_state in enumerate(torch.cuda.get_rng_state_all())}
    return state


def restore_rng_state(state: Mapping[str, Tensor]) -> None:
    """Restore the captured state of all global generators, including CUDA devices present then and now."""
    gauss_next = state["python_gauss"].tolist()
    random.setstate((3, tuple(state["python"].tolist()), gauss_next[0] if gauss_next else None))
    *keys, position = state["numpy"].tolist()
    cached = state["numpy_gauss"].tolist()
    np.random.set_state(
        ("MT19937", np.array(keys, dtype=np.uint32), position, len(cached), cached[0] if cached else 0.0)
    )
    torch.set_rng_state(state["torch"])
    for k in range(torch.cuda.device_count()):
        if f"cuda{k}" in state:
            torch.cuda.set_rng_state(state[f"cuda{k}"], k)


@contextmanager
def isolated_rng() -> Iterator[None]:
    """Restores the state of the global generators at the end of the block."""
    before = capture_rng_state()
    try:
        yield
    finally:
        restore_rng_state(before)
