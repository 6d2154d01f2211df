"""The models and batches of a run, from its config, table and seed; the dense model may be a trained one."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from thresher._internal.mapped_tensors import load_tensor_state_, tensor_state
from thresher.attach.attach import attach_
from thresher.compact.method_table import StoredEmbedding
from thresher.compact.table import CompactTable
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.table import EncodedTable
from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.pep import PepConfig
from thresher.embeddings.uniform import UniformConfig
from thresher.errors import ConfigError
from thresher.experiment.config import RunConfig
from thresher.experiment.dense_start import DenseStart
from thresher.experiment.retrain import TrainedModel
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_parts import ENCODED
from thresher.models.base import CtrModel
from thresher.models.model_registry import build_model
from thresher.search.ticket import Ticket
from thresher.serving.bundle import open_bundle
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


def load_start(folder: Path, table: EncodedTable) -> DenseStart:
    """The trained model of a run or a bundle, for rows that were encoded with its vocabularies.

    Pruned entries of a bundle start as they read, so a smaller model can be made of a pruned one.
    """
    if (folder / "bundle.json").exists():
        bundle = open_bundle(folder)
        _check_vocabularies(folder, bundle.encoder, table)
        return DenseStart(_dense_state(bundle.model, folder), None)
    if (folder / "config.toml").exists():
        run = Run.open(folder)
        if not run.dense_weights.exists():
            raise ConfigError(
                f"run {folder} holds no dense model. Its search did not start from one (effort paper), or it has not "
                "trained it yet. Resume it, or name another run or a bundle."
            )
        _check_vocabularies(folder, RowEncoder.load(folder / ENCODED), table)
        return DenseStart.load(run.dense_weights)
    raise ConfigError(f"start_from is {folder}, which is neither a run nor a bundle. Name the folder of one.")


def load_weights_(model: nn.Module, start: DenseStart, folder: Path) -> None:
    """Load a trained model into one that was built with the settings of this run."""
    own = {name: tuple(tensor.shape) for name, tensor in tensor_state(model).items()}
    found = {name: tuple(tensor.shape) for name, tensor in start.state.items()}
    if different := sorted(name for name in own.keys() | found.keys() if own.get(name) != found.get(name)):
        name = different[0]
        shapes = f"{name} has shape {found.get(name, 'none')}, expected {own.get(name, 'none')}"
        raise ConfigError(
            f"the model in {folder} does not fit the settings of this run ({shapes}). Use the same model settings and "
            "embedding_dim."
        )
    load_tensor_state_(model, start.state)


def _check_vocabularies(folder: Path, encoder: RowEncoder, table: EncodedTable) -> None:
    """Raise unless the ids of the table mean the same values as those of the trained model."""
    own = RowEncoder.load(table.folder)
    pairs = zip(encoder.vocabularies, own.vocabularies, strict=False)
    # a bundle may omit values of dropped features
    same = len(encoder.vocabularies) == len(own.vocabularies) and all(
        one.size == two.size and dict(one.items()).items() <= dict(two.items()).items() for one, two in pairs
    )
    if not same:
        raise ConfigError(
            f"the model in {folder} was trained with other vocabularies than these rows have. Set data.vocabulary_like "
            "to the encoded table that it was trained on."
        )


def _dense_state(model: nn.Module, folder: Path) -> dict[str, Tensor]:
    """The `state_dict` of a bundle's model with dense tables."""
    import torch

    state = dict(tensor_state(model))
    for name, module in model.named_modules():
        if isinstance(module, StoredEmbedding):
            if not isinstance(module.table, CompactTable):
                raise ConfigError(f"{folder}: table {name} is stored in the form of its method. Name another model.")
            state[f"{name}.weight"] = torch.from_numpy(module.table.to_dense())
    return state
