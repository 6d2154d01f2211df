"""AutoDim: a differentiable choice among candidate widths for each field, drawn with Gumbel noise.

    v_i = Σ_c p_fc · V[i, :d_c] · P_c,   p_f = softmax((log softmax(size_logits_f) + Gumbel noise) / temperature)

The temperature falls while training, so that draws become choices. Weights learn on training batches, `size_logits` on
validation batches; then each field keeps its likeliest width, and the model is retrained. Zhao et al.,
"Memory-efficient embedding for recommendations" (2020). Not per feature: all features of a field have one width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from thresher.baselines.candidate_sizes import CandidateSizesConfig, CandidateSizesEmbedding
from thresher.embeddings.feature_groups import field_groups
from thresher.embeddings.method_registry import register_embedding
from thresher.errors import ConfigError

MIN_TEMPERATURE = 0.01


@dataclass(frozen=True, kw_only=True)
class AutoDimConfig(CandidateSizesConfig):
    """The candidates, and how fast draws become choices.

    Attributes:
        temperature_decay: what each lookup in training takes from the temperature, which begins at 1.
    """

    temperature_decay: float = 5e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.temperature_decay <= 1:
            raise ConfigError(f"temperature_decay is {self.temperature_decay}; it must lie between 0 and 1")


@register_embedding("autodim", AutoDimConfig)
class AutoDimEmbedding(CandidateSizesEmbedding):
    """Candidates of widths for each field; noise only while training."""

    config: AutoDimConfig
    num_draws: Tensor

    def __init__(
        self, field_sizes: Sequence[int], config: AutoDimConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config, field_groups(field_sizes))
        self.register_buffer("num_draws", torch.zeros((), dtype=torch.int64))

    def shares(self) -> Tensor:
        if not self.training:
            return super().shares()
        temperature = max(MIN_TEMPERATURE, 1 - self.config.temperature_decay * int(self.num_draws))
        self.num_draws += 1
        noise = -torch.log(-torch.log(torch.rand_like(self.size_logits).clamp(1e-9, 1 - 1e-7)))
        return torch.softmax((torch.log_softmax(self.size_logits, dim=1) + noise) / temperature, dim=1)
