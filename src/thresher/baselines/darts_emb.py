"""DartsEmb (AutoEmb): a differentiable choice among candidate widths for each group of features of like popularity.

    v_i = Σ_c p_gc · V[i, :d_c] · P_c,   p_g = softmax(size_logits_g)

Groups are popularity blocks inside each field. Weights learn on training batches, `size_logits` on validation batches,
by the first-order approximation of DARTS; then each group keeps its likeliest width, and the model is retrained.
Zhao et al., "AutoEmb: automated embedding dimensionality search in streaming recommendations" (2020), after Liu et al.,
"DARTS" (2019). Not streaming here: groups are made once, from the training split. For a budget the likeliest widths
within it are taken, all from one search; the authors search once per candidate set.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from thresher.baselines.candidate_sizes import CandidateSizesConfig, CandidateSizesEmbedding
from thresher.embeddings.feature_groups import field_popularity_groups
from thresher.embeddings.method_registry import register_embedding
from thresher.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class DartsEmbConfig(CandidateSizesConfig):
    """The candidates, and the groups that choose among them.

    Attributes:
        groups_per_field: popularity blocks of about equal total count in each field.
    """

    groups_per_field: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups_per_field < 1:
            raise ConfigError(f"groups_per_field is {self.groups_per_field}; it must be at least 1")


@register_embedding("darts-emb", DartsEmbConfig)
class DartsEmbedding(CandidateSizesEmbedding):
    """Candidates of widths for each popularity block of each field."""

    def __init__(
        self, field_sizes: Sequence[int], config: DartsEmbConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        if feature_counts is None:
            raise ConfigError("DartsEmb groups features by popularity and needs feature_counts")
        super().__init__(
            field_sizes, config, field_popularity_groups(field_sizes, feature_counts, config.groups_per_field)
        )
