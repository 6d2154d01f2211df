"""Building blocks of models: linear term, FM term, deep term, self-attention."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.data.table import Bag
from thresher.embeddings.base import Role, RowGradients
from thresher.errors import ConfigError
from thresher.kernels.distinct import DistinctIds, find_distinct
from thresher.kernels.interactions import attend, drop_out, fm_from_rows, sum_from_rows
from thresher.kernels.rows import expand_rows, lookup_rows
from thresher.models.base import DistinctVectors, ModelConfig, embed_fields, is_unmodified


class LinearTerm(RowGradients, nn.Module):
    """First-order weights: `bias + Σ_f w[id_f] + u · dense`. Ids `[B, F]` → `[B]`.

    The weights are a table of width 1. The optimizer treats them as embeddings; by default searches do not prune them.
    """

    def __init__(self, num_features: int, num_dense: int = 0) -> None:
        super().__init__()
        self.weights = nn.Embedding(num_features, 1)
        nn.init.xavier_uniform_(self.weights.weight)
        self.dense = nn.Linear(num_dense, 1, bias=False) if num_dense else None
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, ids: Tensor, dense: Tensor | None = None, bags: Sequence[Bag] = ()) -> Tensor:
        logits = self._sum_weights(ids, bags) + self.bias  # [B]
        check_dense(dense, 0 if self.dense is None else self.dense.in_features)
        return logits if self.dense is None else logits + self.dense(dense).squeeze(1)  # [B]

    def _sum_weights(self, ids: Tensor, bags: Sequence[Bag]) -> Tensor:
        """`Σ_f w[id_f]` `[B]`."""
        if not self.row_gradients:
            return embed_fields(self.weights, ids, bags).sum((1, 2))
        if bags:
            return embed_fields(lambda ids: expand_rows(*self._distinct_rows(ids)), ids, bags).sum((1, 2))
        return sum_from_rows(*self._distinct_rows(ids))

    def _distinct_rows(self, ids: Tensor) -> tuple[Tensor, DistinctIds]:
        distinct = find_distinct(ids, self.weights.num_embeddings)
        return lookup_rows(self.weights.weight, distinct), distinct  # [U, 1]

    def dense_gradients_reason(self) -> str | None:
        return None if type(self.weights) is nn.Embedding else "the first-order weights are pruned"

    def row_tables(self) -> Sequence[nn.Parameter]:
        return list(self.weights.parameters()) if type(self.weights) is nn.Embedding else []

    def parameter_groups(self) -> Mapping[Role, Sequence[nn.Parameter]]:
        has_groups = hasattr(self.weights, "parameter_groups")  # a pruned table declares its own
        return {} if has_groups else {"embeddings": list(self.weights.parameters())}


def fm_term(vectors: Tensor | DistinctVectors) -> Tensor:
    """Sum of the dot products of all pairs of fields, as `½ Σ_d ((Σ_f v)² − Σ_f v²)`. Vectors `[B, F, D]` → `[B]`."""
    if isinstance(vectors, DistinctVectors):
        return fm_from_rows(vectors.rows, vectors.distinct)
    # a compiler fuses the plain formula; predictions take it because its rounding errors are half as large
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
        return 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1)
    if not (torch.is_grad_enabled() and vectors.requires_grad):
        return _fm_term(vectors, vectors.sum(1))
    logits: Tensor = _FmTerm.apply(vectors)[0]  # type: ignore[no-untyped-call]
    return logits


def _fm_term(vectors: Tensor, total: Tensor) -> Tensor:
    squares: Tensor = torch.linalg.vector_norm(vectors, dim=(1, 2)).square()  # [B], without a squared copy
    return 0.5 * (total.square().sum(1) - squares)


class _FmTerm(torch.autograd.Function):
    """The FM term with its gradient `(Σ_f v − v) · grad`, which needs one `[B, F, D]` tensor; autograd needs four."""

    generate_vmap_rule = True

    @staticmethod
    def forward(vectors: Tensor) -> tuple[Tensor, Tensor]:
        total = vectors.sum(1)  # [B, D]
        return _fm_term(vectors, total), total

    @staticmethod
    def setup_context(ctx, inputs, output):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(*inputs, output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad, grad_total):  # type: ignore[no-untyped-def]
        vectors, total = ctx.saved_tensors
        gradient = None
        if grad is not None:
            grad = grad[:, None, None]
            gradient = torch.addcmul(total.unsqueeze(1) * grad, vectors, grad, value=-1)  # [B, F, D] in one pass
        if grad_total is None:
            return gradient
        through_total = grad_total.unsqueeze(1).expand_as(vectors)  # only for second derivatives
        return through_total if gradient is None else gradient + through_total


@dataclass(frozen=True, kw_only=True)
class DeepTermConfig(ModelConfig):
    """Settings of a model's perceptron (MLP)."""

    hidden_sizes: tuple[int, ...] = (100, 100)
    """Width of each hidden layer of the perceptron."""
    dropout: float = 0.2
    """Dropout in each hidden layer, 0 to 1. More if the dense model overfits."""
    batch_norm: bool = True
    """Batch normalisation in each hidden layer."""

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.hidden_sizes):
            raise ConfigError(f"hidden_sizes must be at least 1 each, got {self.hidden_sizes}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout must be at least 0 and below 1, got {self.dropout}")


class Dropout(nn.Dropout):
    """`nn.Dropout` with a faster kernel on a CPU."""

    def forward(self, values: Tensor) -> Tensor:
        return drop_out(values, self.p) if self.training else values


class DeepTerm(nn.Module):
    """A perceptron over the concatenated vectors and dense inputs of a row. Vectors `[B, F, D]` → `[B]`.

    Each hidden layer is linear, batch norm, ReLU, dropout; the output is one linear unit.
    """

    reads_distinct_vectors = True

    def __init__(self, num_fields: int, embedding_dim: int, num_dense: int, config: DeepTermConfig) -> None:
        super().__init__()
        self.num_dense = num_dense
        width = num_fields * embedding_dim + num_dense
        layers: list[nn.Module] = []
        for size in config.hidden_sizes:
            layers.append(nn.Linear(width, size))
            if config.batch_norm:
                layers.append(nn.BatchNorm1d(size))
            layers += [nn.ReLU(), Dropout(config.dropout)]
            width = size
        self.layers = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, vectors: Tensor | DistinctVectors, dense: Tensor | None = None) -> Tensor:
        check_dense(dense, self.num_dense)
        if isinstance(vectors, DistinctVectors):
            if (hidden := self._first_layer(vectors, dense)) is not None:
                for layer in list(self.layers)[1:]:
                    hidden = layer(hidden)
                return hidden.squeeze(1)
            vectors = vectors.expand()
        inputs = vectors.flatten(1)  # [B, F·D]
        logits: Tensor = self.layers(inputs if dense is None else torch.cat((inputs, dense), dim=1))  # [B, 1]
        return logits.squeeze(1)

    def _first_layer(self, vectors: DistinctVectors, dense: Tensor | None) -> Tensor | None:
        """`W · (v_1, …, v_F, dense) + b` `[B, H]`; None if a layer was modified or the columns do not match."""
        layer = self.layers[0]
        if not is_unmodified(self.layers, nn.Sequential) or not is_unmodified(layer, nn.Linear):
            return None
        assert isinstance(layer, nn.Linear)
        vector_weight, dense_weight = layer.weight.tensor_split([layer.in_features - self.num_dense], dim=1)
        hidden = vectors.project_concatenated(vector_weight)
        if hidden is None:
            return None
        if layer.bias is not None:
            hidden = hidden + layer.bias
        return hidden if dense is None else hidden + functional.linear(dense, dense_weight)


class SelfAttention(nn.Module):
    """One interacting layer of AutoInt (Song et al. 2019, Eq. 5–8). Vectors `[B, F, D]` → `[B, F, A]`.

    Heads attend over the fields with dot products (no scaling, no output projection). Their outputs are concatenated
    to width `A = attention_dim`; a projection of the input is added, followed by ReLU.
    """

    reads_distinct_vectors = True

    def __init__(self, width: int, attention_dim: int, num_heads: int, *, dropout: float, residual: bool) -> None:
        super().__init__()
        self.num_heads, self.dropout = num_heads, nn.Dropout(dropout)
        self.query, self.key, self.value = (nn.Linear(width, attention_dim, bias=False) for _ in range(3))
        self.residual = nn.Linear(width, attention_dim, bias=False) if residual else None

    def forward(self, vectors: Tensor | DistinctVectors) -> Tensor:
        query, key, value = (_project(layer, vectors) for layer in (self.query, self.key, self.value))  # [B, F, A]
        dropout = self.dropout.p if self.training else 0.0
        attended = attend(query, key, value, self.num_heads, dropout=dropout)  # [B, F, A]
        return functional.relu(attended if self.residual is None else attended + _project(self.residual, vectors))


def _project(layer: nn.Linear, vectors: Tensor | DistinctVectors) -> Tensor:
    projected: Tensor = vectors.project(layer) if isinstance(vectors, DistinctVectors) else layer(vectors)  # [B, F, A]
    return projected


def check_dense(dense: Tensor | None, num_dense: int) -> None:
    given = 0 if dense is None else dense.shape[1]
    if given != num_dense:
        raise ConfigError(
            f"the batch has {given} dense inputs, but the model was built with num_dense={num_dense}. Pass "
            f"num_dense={given} to build_model, or {num_dense} inputs to the model."
        )
