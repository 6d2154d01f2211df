"""AutoInt (Song et al., *Automatic Feature Interaction Learning via Self-Attentive Neural Networks*, CIKM 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from thresher.data.table import Bag
from thresher.embeddings.base import FieldEmbedding
from thresher.errors import ConfigError
from thresher.models.base import CtrModel
from thresher.models.layers import DeepTerm, DeepTermConfig, LinearTerm, SelfAttention
from thresher.models.model_registry import register_model


@dataclass(frozen=True, kw_only=True)
class AutoIntConfig(DeepTermConfig):
    """Settings of AutoInt."""

    num_layers: int = 3
    """Attention layers."""
    num_heads: int = 2
    """Heads of each attention layer; must divide `attention_dim`."""
    attention_dim: int = 64
    """Width of all heads of a layer together."""
    attention_dropout: float = 0.0
    """Dropout of attention weights, 0 to 1."""
    residual: bool = True
    """Add the input of each attention layer to its output."""
    deep_term: bool = True
    """Add a perceptron: AutoInt+, which the authors of PEP used."""
    linear_term: bool = False
    """Add first-order weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.num_layers, self.num_heads, self.attention_dim) < 1:
            raise ConfigError("num_layers, num_heads and attention_dim must be at least 1")
        if not 0 <= self.attention_dropout < 1:
            raise ConfigError(f"attention_dropout must be at least 0 and below 1, got {self.attention_dropout}")
        if self.attention_dim % self.num_heads:
            raise ConfigError(f"attention_dim={self.attention_dim} must be a multiple of num_heads={self.num_heads}")


@register_model("autoint", AutoIntConfig)
class AutoInt(CtrModel):
    """Layers of self-attention over the vectors of a row, followed by one linear unit."""

    def __init__(self, embedding: FieldEmbedding, config: AutoIntConfig, *, num_dense: int = 0) -> None:
        super().__init__(embedding)
        if num_dense and not (config.deep_term or config.linear_term):
            raise ConfigError("AutoInt with dense inputs needs deep_term or linear_term. Set one of them to true.")
        width, num_fields = embedding.embedding_dim, embedding.num_fields
        widths = [width] + [config.attention_dim] * (config.num_layers - 1)
        dim, heads, dropout = config.attention_dim, config.num_heads, config.attention_dropout
        layers = [SelfAttention(each, dim, heads, dropout=dropout, residual=config.residual) for each in widths]
        self.attention = nn.Sequential(*layers)
        self.output = nn.Linear(num_fields * config.attention_dim, 1)
        self.deep_term = DeepTerm(num_fields, width, num_dense, config) if config.deep_term else None
        self.linear_term = LinearTerm(embedding.num_features, num_dense) if config.linear_term else None

    def forward(self, ids: Tensor, dense: Tensor | None = None, bags: Sequence[Bag] = ()) -> Tensor:
        vectors = self.distinct_vectors(ids, bags, self.attention, self.deep_term)  # [B, F, D]
        logits: Tensor = self.output(self.attention(vectors).flatten(1)).squeeze(1)  # [B]
        if self.deep_term is not None:
            logits = logits + self.deep_term(vectors, dense)
        if self.linear_term is not None:
            logits = logits + self.linear_term(ids, dense, bags)
        return logits
