"""Register embedding methods, find them by name and build them.

A third-party package registers a method with the decorator or an entry point of the group `thresher.embeddings`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Protocol, TypeVar, cast

from thresher._internal.config_builder import variant_name
from thresher._internal.text import list_first
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding, RegisteredEmbedding, Status, embedding_registry


class EmbeddingClass(Protocol):
    """How a method is built. `feature_counts` are those of the training split."""

    def __call__(
        self, field_sizes: Sequence[int], config: EmbeddingConfig, *, feature_counts: Sequence[int] | None = None
    ) -> FieldEmbedding: ...


EmbeddingT = TypeVar("EmbeddingT", bound=type[FieldEmbedding])


def register_embedding(
    name: str, config: type[EmbeddingConfig], *, status: Status = "stable"
) -> Callable[[EmbeddingT], EmbeddingT]:
    """Class decorator that makes a method available by name to configs, the command line and the contract tests."""

    def register(embedding: EmbeddingT) -> EmbeddingT:
        embedding_registry.add(name, RegisteredEmbedding(name, config, embedding, status))
        return embedding

    return register


def registered_embeddings() -> Mapping[str, RegisteredEmbedding]:
    """All methods by name, including those of other packages."""
    return embedding_registry.entries()


def embedding_config(method: str) -> EmbeddingConfig:
    """The default config of a method."""
    return embedding_registry.find(method).config()


def method_name(config: EmbeddingConfig) -> str:
    return variant_name(config)


def build_embedding(
    field_sizes: Sequence[int], config: EmbeddingConfig, *, feature_counts: Sequence[int] | None = None
) -> FieldEmbedding:
    """Build the embedding a config describes.

    Args:
        field_sizes: features per field, unknown rows included; their sum is `N`.
        config: the method's settings; their class selects the method.
        feature_counts: how often each of the `N` features occurs in the training split; required by methods that
            use popularity, ignored by others.
    """
    build = cast(EmbeddingClass, embedding_registry.find(method_name(config)).embedding)
    return build(field_sizes, config, feature_counts=feature_counts)


def method_grid(method: str) -> Sequence[EmbeddingConfig]:
    """The settings a comparison tries for a method, in this order (`EmbeddingConfig.grid`)."""
    return embedding_registry.find(method).config.grid()


def frontier_points(method: str) -> Sequence[EmbeddingConfig]:
    """Settings of a method that a comparison adds to the frontier (`EmbeddingConfig.frontier_points`)."""
    return embedding_registry.find(method).config.frontier_points()


def describe_settings(config: EmbeddingConfig, grid: Sequence[EmbeddingConfig] | None = None) -> str:
    """The settings that vary within the method's grid, and the width.

    >>> from thresher.baselines.mde import MdeConfig
    >>> describe_settings(MdeConfig(embedding_dim=32, num_blocks=16), method_grid("mde"))
    'embedding_dim up to 32, num_blocks 16, temperature 0.3'
    """
    method = method_name(config)
    others = method_grid(method) if grid is None else grid
    # without a search, a budget lowers this setting
    searched = registered_embeddings()[method].embedding.search_algorithm != "immediate"
    parts = []
    for field in fields(config):
        value = getattr(config, field.name)
        varies = any(getattr(other, field.name) != value for other in others)
        if value is not None and (varies or field.name == "embedding_dim"):
            up_to = "" if searched or field.name != config.budget_setting else "up to "
            parts.append(f"{field.name} {up_to}{_value_text(value)}")
    return ", ".join(parts)


def describe_grid(method: str, *, first: int) -> str:
    """The first settings of a method's grid, and the number of further ones."""
    grid = method_grid(method)
    return list_first((describe_settings(config, grid) for config in grid), first, separator="; ")


def _value_text(value: Any) -> str:
    return f"{{{', '.join(map(str, value))}}}" if isinstance(value, tuple) else str(value)
