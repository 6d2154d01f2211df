"""Register models, find them by name and build them.

A third-party package registers a model with the decorator or an entry point of the group `thresher.models`.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from thresher._internal.config_builder import variant_name
from thresher._internal.registry import ClassContract
from thresher.embeddings.base import FieldEmbedding
from thresher.models.base import CtrModel, ModelConfig, RegisteredModel, model_registry as _registry

FLOOR = "lr"
"""The model without an embedding (logistic regression), with which models that have one are compared."""
_LARGE_NETWORK = {"hidden_sizes": (400, 400, 400), "dropout": 0.2}
RECORDED_SETTINGS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("movielens-1m", "deepfm"): {"hidden_sizes": (100, 100), "dropout": 0.5},
    ("movielens-1m", "autoint"): {
        "hidden_sizes": (100, 100), "dropout": 0.5, "num_layers": 1, "attention_dropout": 0.4,
    },
    ("criteo", "deepfm"): _LARGE_NETWORK,
    ("criteo", "autoint"): _LARGE_NETWORK,
    ("avazu", "deepfm"): _LARGE_NETWORK,
    ("avazu", "autoint"): _LARGE_NETWORK,
}  # fmt: skip
"""(data set, model) → settings that differ from the defaults.

The paper leaves the network to the cited works; the sizes are those of the authors' published scripts, which run
AutoInt with its deep term and without its linear term. On MovieLens-1M dropout is 0.5 instead of their 0.2, and AutoInt
has one layer instead of three: `benchmarks/experiments/movielens-1m/` has the measurements.
"""
ModelT = TypeVar("ModelT", bound=type[CtrModel])
MODEL_CONTRACT = ClassContract(
    what="model",
    base=CtrModel,
    config_base=ModelConfig,
    arguments={
        "__init__": lambda embedding, config, *, num_dense=0: None,
        "forward": lambda ids, dense=None, bags=(): None,
    },
)


def register_model(name: str, config: type[ModelConfig]) -> Callable[[ModelT], ModelT]:
    """Class decorator that makes a model available by name to configs, the command line and the contract tests.

    Raises a `ConfigError` that lists what the class or its config lacks.
    """

    def register(model: ModelT) -> ModelT:
        MODEL_CONTRACT.check(name, model, config, _registry.registered())
        _registry.add(name, RegisteredModel(name, config, model))
        return model

    return register


def registered_models() -> Mapping[str, RegisteredModel]:
    """All models by name, including those of other packages."""
    return _registry.entries()


def model_config(name: str, dataset: str | None = None) -> ModelConfig:
    """The config of a model: the one recorded for a data set, or the default if there is none."""
    return _registry.find(name).config(**RECORDED_SETTINGS.get((dataset or "", name), {}))


def model_name(config: ModelConfig) -> str:
    return variant_name(config)


def has_embedding(config: ModelConfig) -> bool:
    """Whether the model has vectors; a model without them has only first-order weights to prune."""
    return _registry.find(model_name(config)).model.uses_embedding


def build_model(embedding: FieldEmbedding, config: ModelConfig, *, num_dense: int = 0) -> CtrModel:
    """Build the model a config describes, for rows with `num_dense` dense inputs."""
    build: Callable[..., CtrModel] = _registry.find(model_name(config)).model
    return build(embedding, config, num_dense=num_dense)
