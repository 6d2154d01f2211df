"""What every training of a run begins with: a model of the run's seed, and batches in the order of its seed."""

from dataclasses import replace

from torch import nn

from thresher.attach import attach_
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.table import EncodedTable
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.pep import PepConfig
from thresher.experiment.config import RunConfig
from thresher.models.base import CtrModel
from thresher.models.model_registry import build_model
from thresher.training.seeding import derive_seed, isolated_rng, seed_all


def new_model(
    config: RunConfig, table: EncodedTable, embedding: EmbeddingConfig, *, purpose: str = "initial"
) -> CtrModel:
    """A fresh model for a table; the same seed gives every method the same initial weights."""
    with isolated_rng():
        seed_all(derive_seed(config.seed, purpose))
        tables = build_embedding(table.schema.field_sizes, embedding, feature_counts=table.feature_counts.tolist())
        model = build_model(tables, config.model, num_dense=table.schema.num_dense)
    if isinstance(embedding, PepConfig) and embedding.first_order:
        attach_(model, replace(embedding, embedding_dim=1), where=_first_order, min_embedding_dim=1)
    return model


def _first_order(module: nn.Module, name: str) -> bool:
    return isinstance(module, nn.Embedding) and module.embedding_dim == 1


def shuffled_batches(config: RunConfig, table: EncodedTable) -> SplitBatches:
    """The splits of a table, the training rows shuffled by the seed of the settings."""
    return SplitBatches.of(table, config.training.batch_size, seed=derive_seed(config.seed, "batches"))
