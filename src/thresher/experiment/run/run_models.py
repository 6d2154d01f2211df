"""The models and batches of a run, built from its config, its table and its seed."""

from dataclasses import dataclass, replace

from torch import nn

from thresher.attach.attach import attach_
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.table import EncodedTable
from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.pep import PepConfig
from thresher.embeddings.uniform import UniformConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.retrain import TrainedModel
from thresher.models.base import CtrModel
from thresher.models.model_registry import build_model
from thresher.search.ticket import Ticket
from thresher.training.checkpoint import derive_seed, isolated_rng, seed_all
from thresher.training.devices import find_device


def new_model(
    config: RunConfig, table: EncodedTable, embedding: EmbeddingConfig, *, purpose: str = "initial"
) -> CtrModel:
    """A fresh model for a table; a seed gives every method the same initial weights."""
    with isolated_rng():
        seed_all(derive_seed(config.seed, purpose))
        tables = build_embedding(table.schema.field_sizes, embedding, feature_counts=table.feature_counts.tolist())
        model = build_model(tables, config.model, num_dense=table.schema.num_dense)
    if isinstance(embedding, PepConfig) and embedding.first_order:
        attach_(model, replace(embedding, embedding_dim=1), where=_is_first_order, min_embedding_dim=1)
    return model.to(find_device(config.device))


def searches_first_order(config: RunConfig) -> bool:
    """Whether budgets and sizes count the first-order weights, too."""
    return isinstance(config.embedding, PepConfig) and config.embedding.first_order


def with_first_order(dense: TrainedModel) -> TrainedModel:
    """The dense model's size with its first-order weights, so that it counts the same tables as pruned models do."""
    modules = dense.model.named_modules()
    tables = [module for name, module in modules if isinstance(module, nn.Embedding) and _is_first_order(module, name)]
    num_weights = sum(table.weight.numel() for table in tables)
    return replace(
        dense,
        num_parameters=dense.num_parameters + num_weights,
        storage_bytes=dense.storage_bytes + num_weights * BYTES_PER_VALUE,
    )


def _is_first_order(module: nn.Module, name: str) -> bool:
    return isinstance(module, nn.Embedding) and module.embedding_dim == 1


@dataclass(frozen=True)
class ConfiguredModels:
    """The `ModelBuilder` of a run."""

    config: RunConfig
    table: EncodedTable

    def dense(self) -> CtrModel:
        """The model with a uniform table of the same width."""
        return new_model(self.config, self.table, UniformConfig(embedding_dim=self.config.embedding.embedding_dim))

    def searched(self) -> CtrModel:
        return new_model(self.config, self.table, self.config.embedding)

    def for_ticket(self, ticket: Ticket) -> CtrModel:
        # rewind = "random" asks for other initial weights than the search had
        purpose = "retrain" if self.config.rewind == "random" else "initial"
        return new_model(self.config, self.table, ticket.embedding_config(self.config.embedding), purpose=purpose)


def shuffled_batches(config: RunConfig, table: EncodedTable) -> SplitBatches:
    """The splits of a table, the training rows shuffled by the seed of the config."""
    return SplitBatches.of(table, config.training.batch_size, seed=derive_seed(config.seed, "batches"))


def check_teacher_models(config: RunConfig, table: EncodedTable) -> None:
    """Raise, before anything is trained, if a teacher model cannot be built for these rows."""
    for model in config.teacher_models:
        with isolated_rng():
            one_each = [1] * len(table.schema.field_sizes)
            tables = build_embedding(one_each, UniformConfig(embedding_dim=config.embedding.embedding_dim))
            build_model(tables, model, num_dense=table.schema.num_dense)
