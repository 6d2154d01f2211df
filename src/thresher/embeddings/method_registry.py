"""Register embedding methods, find them by name and build them.

A third-party package registers a method with the decorator or an entry point of the group `thresher.embeddings`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TypeVar

from thresher._internal.config_builder import variant_name
from thresher._internal.registry import ClassContract
from thresher._internal.text import list_first
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding, RegisteredEmbedding, Status, embedding_registry

EmbeddingT = TypeVar("EmbeddingT", bound=type[FieldEmbedding])
METHOD_CONTRACT = ClassContract(
    what="method",
    base=FieldEmbedding,
    config_base=EmbeddingConfig,
    arguments={
        "__init__": lambda field_sizes, config, *, feature_counts=None: None,
        "forward": lambda ids: None,
        "num_parameters": lambda: None,
        "storage_bytes": lambda: None,
    },
)


def register_embedding(
    name: str, config: type[EmbeddingConfig], *, status: Status = "stable"
) -> Callable[[EmbeddingT], EmbeddingT]:
    """Class decorator that makes a method available by name to configs, the command line and the contract tests.

    Raises a `ConfigError` that lists what the class or its config lacks.
    """

    def register(embedding: EmbeddingT) -> EmbeddingT:
        METHOD_CONTRACT.check(name, embedding, config, embedding_registry.registered())
        embedding_registry.add(name, RegisteredEmbedding(name, config, embedding, status))
        return embedding

    return register


def registered_embeddings() -> Mapping[str, RegisteredEmbedding]:
    """All methods by name, including those of other packages."""
    return embedding_registry.entries()


def embedding_config(method: str) -> EmbeddingConfig:
    return embedding_registry.find(method).config()


def method_name(config: EmbeddingConfig) -> str:
    return variant_name(config)


def build_embedding(
    field_sizes: Sequence[int], config: EmbeddingConfig, *, feature_counts: Sequence[int] | None = None
) -> FieldEmbedding:
    """Build the embedding a config describes. Methods that use popularity need `feature_counts` `[N]` in training."""
    build: Callable[..., FieldEmbedding] = embedding_registry.find(method_name(config)).embedding
    return build(field_sizes, config, feature_counts=feature_counts)


def method_grid(method: str) -> Sequence[EmbeddingConfig]:
    """The settings a comparison tries for a method, in this order (`EmbeddingConfig.grid`)."""
    return embedding_registry.find(method).config.grid()


def frontier_points(method: str) -> Sequence[EmbeddingConfig]:
    """Settings of a method that a comparison adds to the frontier (`EmbeddingConfig.frontier_points`)."""
    return embedding_registry.find(method).config.frontier_points()


def describe_settings(config: EmbeddingConfig, grid: Sequence[EmbeddingConfig]) -> str:
    """The settings that vary within the method's grid, and the width.

    >>> from thresher.baselines.mde import MdeConfig
    >>> describe_settings(MdeConfig(embedding_dim=32, num_blocks=16), method_grid("mde"))
    'embedding_dim up to 32, num_blocks 16, temperature 0.3'
    """
    embedding = embedding_registry.find(method_name(config)).embedding
    # without a search, a budget lowers this setting
    lowered = config.budget_setting if embedding.search_algorithm == "immediate" else None
    parts = []
    for name in (field.name for field in fields(config)):
        value = getattr(config, name)
        varies = any(getattr(other, name) != value for other in grid)
        if value is not None and (varies or name == "embedding_dim"):
            text = f"{{{', '.join(map(str, value))}}}" if isinstance(value, tuple) else str(value)
            parts.append(f"{name} {'up to ' if name == lowered else ''}{text}")
    return ", ".join(parts)


def describe_grid(method: str, *, first: int) -> str:
    """The first settings of a method's grid, and the number of further ones."""
    grid = method_grid(method)
    return list_first((describe_settings(config, grid) for config in grid), first, separator="; ")
