"""Method name → (config, class). Open: a third party registers with the decorator or an entry point."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, cast

from thresher._internal.registry import Registry
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding
from thresher.errors import ConfigError

_BASELINES = (
    "autodim", "darts_emb", "dnis", "hashing", "l1_projection", "magnitude", "mde", "mgqe", "nis", "quantised",
    "quotient_remainder",
)  # fmt: skip
_MODULES = (
    "thresher.embeddings.pep",
    "thresher.embeddings.uniform",
    *(f"thresher.baselines.{name}" for name in _BASELINES),
)
"""Where Thresher's own methods are; a new one adds its module here."""
Status = Literal["stable", "experimental"]


class EmbeddingClass(Protocol):
    """How a method is built: `cls(field_sizes, config, feature_counts=…)`; the counts are of the training split."""

    def __call__(
        self, field_sizes: Sequence[int], config: EmbeddingConfig, *, feature_counts: Sequence[int] | None = None
    ) -> FieldEmbedding: ...


@dataclass(frozen=True)
class RegisteredEmbedding:
    name: str
    config: type[EmbeddingConfig]
    embedding: type[FieldEmbedding]
    status: Status


_registry: Registry[RegisteredEmbedding] = Registry("embedding method", _MODULES, group="thresher.embeddings")
EmbeddingT = TypeVar("EmbeddingT", bound=type[FieldEmbedding])


def register_embedding(
    name: str, config: type[EmbeddingConfig], *, status: Status = "stable"
) -> Callable[[EmbeddingT], EmbeddingT]:
    """Class decorator: make a method available by name to configs, the command line and the contract suite."""

    def register(embedding: EmbeddingT) -> EmbeddingT:
        _registry.add(name, RegisteredEmbedding(name, config, embedding, status))
        return embedding

    return register


def registered_embeddings() -> Mapping[str, RegisteredEmbedding]:
    """All methods by name, Thresher's own and those of other packages."""
    return _registry.entries()


def embedding_configs() -> Mapping[str, type[EmbeddingConfig]]:
    return {name: registered.config for name, registered in registered_embeddings().items()}


def embedding_config(method: str) -> EmbeddingConfig:
    """The default config of a method, by its name."""
    return _registry.find(method).config()


def method_name(config: EmbeddingConfig) -> str:
    """The registered name whose config class this is."""
    for name, registered in registered_embeddings().items():
        if type(config) is registered.config:
            return name
    raise ConfigError(f"{type(config).__qualname__} belongs to no registered embedding method")


def build_embedding(
    field_sizes: Sequence[int], config: EmbeddingConfig, *, feature_counts: Sequence[int] | None = None
) -> FieldEmbedding:
    """Build the embedding a config describes.

    Args:
        field_sizes: features per field, unknown rows included; their sum is `N`.
        config: which method, and its settings.
        feature_counts: how often each of the `N` features occurs in the training split; methods that go by
            popularity need it, others ignore it.
    """
    build = cast(EmbeddingClass, _registry.find(method_name(config)).embedding)
    return build(field_sizes, config, feature_counts=feature_counts)
