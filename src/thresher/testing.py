"""Contract checks for authors of methods and models; Thresher's own pass them too.

    from thresher.testing import check_embedding, check_model
    check_embedding(MyEmbedding, MyConfig(embedding_dim=8))

A failed check raises `AssertionError` with the requirement. The checks use a small table and take about a second.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import get_args

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from thresher._internal.registry import ClassContract
from thresher._internal.settings import config_from_mapping, config_to_mapping
from thresher.compact.method_table import has_table, to_table
from thresher.data.table import Bag
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding, Role, RowEmbedding
from thresher.embeddings.method_registry import METHOD_CONTRACT
from thresher.embeddings.uniform import UniformConfig, UniformEmbedding
from thresher.errors import ThresherError
from thresher.kernels.rows import expand_rows
from thresher.models.base import CtrModel, ModelConfig
from thresher.models.model_registry import MODEL_CONTRACT
from thresher.search.find_tickets import search_algorithm
from thresher.training.optimizers import OptimizerConfig, build_optimizer

FIELD_SIZES = (7, 2, 12, 30)
BATCH_SIZE = 64


@dataclass(frozen=True)
class ToyBatch:
    """Rows whose label depends on their first and last field: `ids` `[B, F]` int32, `labels` `[B]`."""

    ids: Tensor
    labels: Tensor
    feature_counts: tuple[int, ...]


def toy_batch(seed: int = 0) -> ToyBatch:
    """A small random batch, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    local = [torch.randint(size, (BATCH_SIZE,), generator=generator) for size in FIELD_SIZES]
    offsets = [sum(FIELD_SIZES[:field]) for field in range(len(FIELD_SIZES))]
    ids = torch.stack([column + offset for column, offset in zip(local, offsets, strict=True)], dim=1).int()
    labels = ((local[0] + local[-1]) % 2).float()
    counts = torch.bincount(ids.flatten(), minlength=sum(FIELD_SIZES))
    return ToyBatch(ids, labels, tuple(counts.tolist()))


def check_embedding(embedding: Callable[..., FieldEmbedding], config: EmbeddingConfig) -> None:
    """Check that a method, built as `embedding(field_sizes, config, feature_counts=…)`, is a valid `FieldEmbedding`.

    `config` must fit a table of 51 features in fields of 7, 2, 12 and 30.
    """
    _check_parts(METHOD_CONTRACT, embedding, config)
    batch, D = toy_batch(), config.embedding_dim

    def new(seed: int) -> FieldEmbedding:
        torch.manual_seed(seed)
        return embedding(FIELD_SIZES, config, feature_counts=batch.feature_counts)

    _check_config(config)
    table = new(seed=0)
    _require(isinstance(table, FieldEmbedding), "the class must be a subclass of FieldEmbedding")
    _require(table.num_features == sum(FIELD_SIZES), "num_features must be the sum of field_sizes")
    _require(table.embedding_dim == D, "embedding_dim must be that of the config")
    try:
        search_algorithm(table.search_algorithm)
    except ThresherError as error:
        raise AssertionError(f"search_algorithm must name a registered search algorithm: {error}") from error
    _check_parameter_groups(table)
    _check_sizes(table)
    before = {name: parameter.detach().clone() for name, parameter in table.named_parameters()}
    _train(table, lambda: table(batch.ids).square().mean(), learning_rate=0.01, steps=1)
    changed = [name for name, parameter in table.named_parameters() if not torch.equal(parameter, before[name])]
    _require(bool(changed), "a training step must change at least one parameter")

    vectors = table.eval()(batch.ids)
    shape = (BATCH_SIZE, len(FIELD_SIZES), D)
    _require(vectors.shape == shape, f"ids [B, F] must give vectors [B, F, D], got {tuple(vectors.shape)}")
    _require(bool(vectors.isfinite().all()), "vectors must be finite")
    _check_outputs(table, (batch.ids,), "vectors", new(seed=1))
    _require_close(table(batch.ids[3]), vectors[3], "a single row [F] must give the same vectors as in a batch")
    _require_close(table(batch.ids[:, 1]), vectors[:, 1], "a column [B] must give the same vectors as in a batch")
    if isinstance(table, RowEmbedding) and table.has_distinct_rows:
        expanded = expand_rows(*table.distinct_rows(batch.ids))
        _require_close(expanded, vectors, "distinct_rows, expanded to positions, must equal the output of forward")
    if has_table(table):
        _check_stored_form(table, batch.ids, vectors)


def check_model(model: Callable[..., CtrModel], config: ModelConfig) -> None:
    """Check that a model, built as `model(embedding, config, num_dense=…)`, is a valid `CtrModel`."""
    _check_parts(MODEL_CONTRACT, model, config)
    batch = toy_batch()
    dense = torch.randn(BATCH_SIZE, 3, generator=torch.Generator().manual_seed(1))

    def new(seed: int, num_dense: int) -> CtrModel:
        torch.manual_seed(seed)
        table = UniformEmbedding(FIELD_SIZES, UniformConfig(embedding_dim=8))
        return model(table, config, num_dense=num_dense)

    _check_config(config)
    for inputs in ((batch.ids,), (batch.ids, dense)):
        num_dense = 0 if len(inputs) == 1 else dense.shape[1]
        ctr = new(0, num_dense)
        _require(isinstance(ctr, CtrModel), "the class must be a subclass of CtrModel")
        shape = tuple(ctr(*inputs).shape)
        _require(shape == (BATCH_SIZE,), f"logits must have shape [B], got {shape}")
        _check_loss_falls(ctr, inputs, batch.labels)
        logits = ctr.eval()(*inputs)
        _require(bool((logits < 0).any()), "outputs must be logits (negative for label 0), not probabilities")
        _check_outputs(ctr, inputs, "logits", new(1, num_dense))
        bag = Bag(1, batch.ids[:, 1], torch.arange(BATCH_SIZE + 1), "mean")
        bagged = ctr(batch.ids[:, [0, 2, 3]], dense if num_dense else None, (bag,))
        _require_close(bagged, logits, "a multi-valued field with one value must equal a single-valued field")
        has_embedding = ctr.embedding is not None
        _require(has_embedding == ctr.uses_embedding, "embedding must be None if and only if uses_embedding is False")
        expected = 0 if ctr.embedding is None else ctr.embedding.num_parameters()
        _require(ctr.num_parameters() == expected, "num_parameters() must be that of the embedding")
    reads_dense = not torch.equal(ctr(batch.ids, dense), ctr(batch.ids, dense + 1))
    _require(reads_dense, "logits must depend on the dense inputs")


def _check_parts(contract: ClassContract, cls: Callable[..., object], config: object) -> None:
    """Check base classes and arguments first: all that is missing, in one message."""
    found = contract.missing(cls, type(config)) if isinstance(cls, type) else []
    is_config = isinstance(config, contract.config_base)
    base = f"thresher.{contract.config_base.__name__}"
    _require(bool(found) or is_config, f"the config must be an instance of a subclass of {base}")
    _require(not found, f"{getattr(cls, '__qualname__', cls)} is not a {contract.what}: {'; '.join(found)}")


def _check_config(config: EmbeddingConfig | ModelConfig) -> None:
    if type(config) not in type(config).config_variants().values():
        return  # not registered, so a TOML file cannot name it
    try:
        again = config_from_mapping(type(config), config_to_mapping(config))
    except Exception as error:
        raise AssertionError(f"the config must be readable from the TOML it is written to: {error}") from error
    _require(again == config, f"the config must equal itself after writing it to TOML and reading it, got {again}")


def _check_parameter_groups(table: FieldEmbedding) -> None:
    own = set(table.parameters())
    groups: Mapping[Role, Sequence[nn.Parameter]] = table.parameter_groups()
    _require(not own or bool(groups), "parameter_groups() must give the role of the parameters, for example embeddings")
    for role, parameters in groups.items():
        _require(role in get_args(Role), f"roles in parameter_groups() must be one of {get_args(Role)}, got {role!r}")
        _require(own >= set(parameters), "parameter_groups() must contain only the table's own parameters")
    listed = [parameter for parameters in groups.values() for parameter in parameters]
    _require(len(listed) == len(set(listed)), "parameter_groups() must contain each parameter only once")


def _check_sizes(table: FieldEmbedding) -> None:
    for name in ("num_parameters", "storage_bytes"):
        size = getattr(table, name)()
        _require(type(size) is int and size > 0, f"{name}() must be an int above 0, got {size!r}")
    minimum, found = table.num_parameters() // 2, table.storage_bytes()  # int4 values
    _require(found >= minimum, f"storage_bytes() must be at least {minimum} for num_parameters(), got {found}")


def _train(module: nn.Module, loss: Callable[[], Tensor], *, learning_rate: float, steps: int) -> list[float]:
    """Train and return the loss before each step and after the last."""
    optimizer = build_optimizer(module, OptimizerConfig(learning_rate=learning_rate, weight_decay=0.0))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        _require(value.requires_grad, "outputs must have gradients in training")
        torch.autograd.backward(value)
        optimizer.step()
        losses.append(value.item())
    losses.append(loss().item())
    _require(isfinite(losses[-1]), "the loss must be finite after training")
    return losses


def _check_loss_falls(model: CtrModel, inputs: tuple[Tensor, ...], labels: Tensor) -> None:
    """Train for 30 steps on one batch: the loss falls only if gradients reach the parameters."""

    def loss() -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(model(*inputs), labels)

    first, *_, last = losses = _train(model, loss, learning_rate=0.03, steps=30)
    falls = min(losses[-5:]) < 0.9 * first
    _require(falls, f"the loss must fall by 10 % in 30 training steps, got {first:.4f} → {last:.4f}")
    if model.embedding is not None:
        has_gradients = any(parameter.grad is not None for parameter in model.embedding.parameters())
        _require(has_gradients, "the embedding's parameters must get gradients")


def _check_outputs(module: nn.Module, inputs: tuple[Tensor, ...], name: str, other: nn.Module) -> None:
    """Check the outputs of a trained module in eval mode, and of copies of it; `other` is a new instance."""
    ids, *dense = inputs
    expected = module(*inputs)
    _require(torch.equal(module(*inputs), expected), f"calls in eval mode must give the same {name} each time")
    _require_close(module(ids.long(), *dense), expected, f"int32 and int64 ids must give the same {name}")
    flipped = module(*(part.flip(0) for part in inputs))
    _require_close(flipped, expected.flip(0), f"{name} of a row must depend only on its row, not on the batch")
    first, empty = (module(*(part[:count] for part in inputs)) for count in (1, 0))
    _require_close(first, expected[:1], f"a batch of one row must give the same {name}")
    _require(empty.shape == expected[:0].shape, "an empty batch must give an empty output")
    stored = save({key: value.contiguous().clone() for key, value in module.state_dict().items()})
    other.load_state_dict(load(stored))
    loaded = other.eval()(*inputs)
    _require(torch.equal(loaded, expected), f"state_dict must hold the whole state, but loading it changes the {name}")
    _require(torch.equal(copy.deepcopy(module)(*inputs), expected), "a deep copy must give the same outputs")


def _check_stored_form(table: FieldEmbedding, ids: Tensor, expected: Tensor) -> None:
    try:
        stored = to_table(table)
    except (ThresherError, ValueError, LookupError, TypeError) as error:
        raise AssertionError(f"the stored form must be readable: {error}") from error
    shape = (table.num_features, table.embedding_dim)
    _require(stored.shape == shape, f"the stored form must have shape {shape}, got {stored.shape}")
    _require_close(stored.lookup(ids), expected, "the stored form must give the same vectors")
    for outside in (-1, table.num_features):
        id_outside = torch.tensor([outside])
        zeros = stored.lookup(id_outside, out_of_range="zeros")
        _require(not zeros.any(), f'the stored form must give zeros for id {outside} with out_of_range="zeros"')
        try:
            stored.lookup(id_outside)
        except IndexError:
            continue
        raise AssertionError(f"the stored form must raise IndexError for id {outside}, which is outside the table")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _require_close(found: Tensor, expected: Tensor, message: str) -> None:
    _require(found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-4, atol=1e-5), message)
