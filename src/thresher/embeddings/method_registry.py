"""Register embedding methods, find them by name and build them.

A third-party package registers a method with the decorator or an entry point of the group `thresher.embeddings`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, cast

from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding, RegisteredEmbedding, Status, embedding_registry
from thresher.errors import ConfigError


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
    """The name under which the config's class is registered."""
    for name, registered in registered_embeddings().items():
        if type(config) is registered.config:
            return name
    raise ConfigError(
        f"{type(config).__qualname__} is not the config of a registered embedding method. "
        "Register the method with register_embedding."
    )


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
