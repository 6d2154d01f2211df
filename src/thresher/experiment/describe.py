"""Settings of a grid in words: for a comparison's progress, what it says at its start, and the table of the docs."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from thresher._internal.text import list_first
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.method_registry import method_name, registered_embeddings
from thresher.experiment.grids import method_grid


def describe_settings(config: EmbeddingConfig, grid: Sequence[EmbeddingConfig] | None = None) -> str:
    """What tells settings from the others of their grid, and their width.

    >>> from thresher.baselines.mde import MdeConfig
    >>> describe_settings(MdeConfig(embedding_dim=32, num_blocks=16), method_grid("mde"))
    'embedding_dim up to 32, num_blocks 16, temperature 0.3'
    """
    others = method_grid(method_name(config)) if grid is None else grid
    decided = _decided_by_budget(config)
    parts = []
    for field in fields(config):
        value = getattr(config, field.name)
        varies = any(getattr(other, field.name) != value for other in others)
        if value is not None and (varies or field.name == "embedding_dim"):
            parts.append(f"{field.name} {'up to ' if field.name == decided else ''}{_text(value)}")
    return ", ".join(parts)


def describe_grid(method: str, *, first: int) -> str:
    """The first settings of a method's grid, and how many there are beside them."""
    grid = method_grid(method)
    return list_first((describe_settings(config, grid) for config in grid), first, separator="; ")


def _decided_by_budget(config: EmbeddingConfig) -> str | None:
    """The setting that a budget lowers, where nothing is searched."""
    searched = registered_embeddings()[method_name(config)].embedding.search_algorithm
    return config.budget_setting if searched == "immediate" else None


def _text(value: Any) -> str:
    return f"{{{', '.join(map(str, value))}}}" if isinstance(value, tuple) else str(value)
