"""Method name → (config, class). Open: a third party registers with the decorator or an entry point."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, cast

from thresher.announced import load_announced, unknown_name
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding
from thresher.errors import ConfigError

ENTRY_POINT_GROUP = "thresher.embeddings"
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


_registered: dict[str, RegisteredEmbedding] = {}
EmbeddingT = TypeVar("EmbeddingT", bound=type[FieldEmbedding])


def register_embedding(
    name: str, config: type[EmbeddingConfig], *, status: Status = "stable"
) -> Callable[[EmbeddingT], EmbeddingT]:
    """Class decorator: make a method available by name to configs, the command line and the contract suite."""

    def register(embedding: EmbeddingT) -> EmbeddingT:
        known = _registered.get(name)
        if known is not None and known.embedding is not embedding:
            raise ConfigError(f"embedding method {name!r} is already registered by {known.embedding.__qualname__}")
        _registered[name] = RegisteredEmbedding(name, config, embedding, status)
        return embedding

    return register


def registered_embeddings() -> Mapping[str, RegisteredEmbedding]:
    """All methods, ours and those other packages announce by entry point, by name."""
    import thresher.embeddings.methods  # noqa: F401  (registers ours)

    load_announced(ENTRY_POINT_GROUP, _registered)
    return dict(sorted(_registered.items()))


def embedding_configs() -> Mapping[str, type[EmbeddingConfig]]:
    return {name: registered.config for name, registered in registered_embeddings().items()}


def embedding_config(method: str) -> EmbeddingConfig:
    """The default config of a method, by its name."""
    return _find(method).config()


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
    build = cast(EmbeddingClass, _find(method_name(config)).embedding)
    return build(field_sizes, config, feature_counts=feature_counts)


def _find(method: str) -> RegisteredEmbedding:
    known = registered_embeddings()
    if method not in known:
        raise unknown_name("embedding method", method, known)
    return known[method]
