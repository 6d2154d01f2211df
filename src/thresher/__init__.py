"""Thresher prunes the embedding tables of recommender models.

Public names only; nothing is loaded before it is used, so that `import thresher` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.embeddings.pep import PepConfig
    from thresher.embeddings.registry import register_embedding
    from thresher.embeddings.uniform import UniformConfig
    from thresher.errors import ThresherError

_HOMES = {
    "PepConfig": "thresher.embeddings.pep",
    "ThresherError": "thresher.errors",
    "UniformConfig": "thresher.embeddings.uniform",
    "register_embedding": "thresher.embeddings.registry",
}

__version__ = "0.1.0"
__all__ = [
    "PepConfig",
    "ThresherError",
    "UniformConfig",
    "register_embedding",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module at first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'thresher' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
