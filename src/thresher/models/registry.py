"""Model name → (config, class). Open: a third party registers with the decorator or an entry point."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

from thresher.announced import load_announced, unknown_name
from thresher.embeddings.base import FieldEmbedding
from thresher.errors import ConfigError
from thresher.models.base import CtrModel, ModelConfig

ENTRY_POINT_GROUP = "thresher.models"


class ModelClass(Protocol):
    """How a model is built: `cls(embedding, config, num_dense=…)`."""

    def __call__(self, embedding: FieldEmbedding, config: ModelConfig, *, num_dense: int = 0) -> CtrModel: ...


@dataclass(frozen=True)
class RegisteredModel:
    name: str
    config: type[ModelConfig]
    model: type[CtrModel]


_registered: dict[str, RegisteredModel] = {}
ModelT = TypeVar("ModelT", bound=type[CtrModel])


def register_model(name: str, config: type[ModelConfig]) -> Callable[[ModelT], ModelT]:
    """Class decorator: make a model available by name to configs, the command line and the contract suite."""

    def register(model: ModelT) -> ModelT:
        known = _registered.get(name)
        if known is not None and known.model is not model:
            raise ConfigError(f"model {name!r} is already registered by {known.model.__qualname__}")
        _registered[name] = RegisteredModel(name, config, model)
        return model

    return register


def registered_models() -> Mapping[str, RegisteredModel]:
    """All models, ours and those other packages announce by entry point, by name."""
    import thresher.models.shipped  # noqa: F401  (registers ours)

    load_announced(ENTRY_POINT_GROUP, _registered)
    return dict(sorted(_registered.items()))


def model_configs() -> Mapping[str, type[ModelConfig]]:
    return {name: registered.config for name, registered in registered_models().items()}


def model_config(name: str, *, dataset: str | None = None) -> ModelConfig:
    """The default config of a model, by its name; with `dataset`, the one recorded for that data set, if any."""
    from thresher.models.settings import RECORDED_SETTINGS

    default = _find(name).config()
    return default if dataset is None else RECORDED_SETTINGS.get((dataset, name), default)


def model_name(config: ModelConfig) -> str:
    """The registered name whose config class this is."""
    for name, registered in registered_models().items():
        if type(config) is registered.config:
            return name
    raise ConfigError(f"{type(config).__qualname__} belongs to no registered model")


def has_embedding(config: ModelConfig) -> bool:
    """Whether the model has vectors; one that has none has nothing to prune but first-order weights."""
    return _find(model_name(config)).model.uses_embedding


def build_model(embedding: FieldEmbedding, config: ModelConfig, *, num_dense: int = 0) -> CtrModel:
    """Build the model a config describes over a given embedding.

    Args:
        embedding: looks up the vectors; a model that has none (`uses_embedding` is False) only reads its sizes.
        config: which model, and its settings.
        num_dense: how many dense inputs each row has beside its ids.
    """
    build = cast(ModelClass, _find(model_name(config)).model)
    return build(embedding, config, num_dense=num_dense)


def _find(name: str) -> RegisteredModel:
    known = registered_models()
    if name not in known:
        raise unknown_name("model", name, known)
    return known[name]
