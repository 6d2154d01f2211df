"""Model name → (config, class). Open: a third party registers with the decorator or an entry point."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from thresher._internal.registry import Registry
from thresher.embeddings.base import FieldEmbedding
from thresher.errors import ConfigError
from thresher.models.base import CtrModel, ModelConfig

_MODULES = tuple(f"thresher.models.{name}" for name in ("autoint", "deepfm", "fm", "lr"))
"""Where Thresher's own models are; a new one adds its module here."""


class ModelClass(Protocol):
    """How a model is built: `cls(embedding, config, num_dense=…)`."""

    def __call__(self, embedding: FieldEmbedding, config: ModelConfig, *, num_dense: int = 0) -> CtrModel: ...


@dataclass(frozen=True)
class RegisteredModel:
    name: str
    config: type[ModelConfig]
    model: type[CtrModel]


_registry: Registry[RegisteredModel] = Registry("model", _MODULES, group="thresher.models")
ModelT = TypeVar("ModelT", bound=type[CtrModel])


def register_model(name: str, config: type[ModelConfig]) -> Callable[[ModelT], ModelT]:
    """Class decorator: make a model available by name to configs, the command line and the contract suite."""

    def register(model: ModelT) -> ModelT:
        _registry.add(name, RegisteredModel(name, config, model))
        return model

    return register


def registered_models() -> Mapping[str, RegisteredModel]:
    """All models by name, Thresher's own and those of other packages."""
    return _registry.entries()


def model_configs() -> Mapping[str, type[ModelConfig]]:
    return {name: registered.config for name, registered in registered_models().items()}


def model_config(name: str) -> ModelConfig:
    """The default config of a model, by its name."""
    return _registry.find(name).config()


def model_name(config: ModelConfig) -> str:
    """The registered name whose config class this is."""
    for name, registered in registered_models().items():
        if type(config) is registered.config:
            return name
    raise ConfigError(f"{type(config).__qualname__} belongs to no registered model")


def has_embedding(config: ModelConfig) -> bool:
    """Whether the model has vectors; one that has none has nothing to prune but first-order weights."""
    return _registry.find(model_name(config)).model.uses_embedding


def build_model(embedding: FieldEmbedding, config: ModelConfig, *, num_dense: int = 0) -> CtrModel:
    """Build the model a config describes over a given embedding.

    Args:
        embedding: looks up the vectors; a model that has none (`uses_embedding` is False) only reads its sizes.
        config: which model, and its settings.
        num_dense: how many dense inputs each row has beside its ids.
    """
    build = cast(ModelClass, _registry.find(model_name(config)).model)
    return build(embedding, config, num_dense=num_dense)
