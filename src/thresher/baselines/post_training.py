"""Post-training pruning: the entries of a trained dense model are scored in one pass; nothing is trained afterwards.

    vector_i = m_i ⊙ V[i] + (1 − m_i) ⊙ p_f,   m = 1 for the k entries of highest score, p_f = 0 or the mean of field f

With `retraining.max_epochs` above 0 the same scores start a short fine-tuning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from thresher.baselines.magnitude import SeenTable
from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig
from thresher.embeddings.method_registry import register_embedding
from thresher.search.controller import find_tables
from thresher.search.entry_scores import Placeholder, Score, ScoredEntries
from thresher.search.find_tickets import SearchTask, register_search
from thresher.search.post_training import PostTrainingSearch
from thresher.search.ticket import MaskTicket
from thresher.training.checkpoint import History
from thresher.training.run_state import HISTORY


@dataclass(frozen=True, kw_only=True)
class PostTrainingConfig(EmbeddingConfig):
    """Prunes the trained dense model without any training."""

    score: Score = "shapley"
    """How entries are scored, in one pass over the training rows: `shapley` (Shapley values by field-wise permutation),
    `fisher`, `taylor`, or `magnitude`, which needs no pass."""
    placeholder: Placeholder = "zeros"
    """What a pruned entry reads as: 0, or `field-mean`, the mean vector of its field, weighted by frequency. The means
    count as parameters of the budget."""

    @property
    def can_start_dense(self) -> bool:
        return True

    @property
    def needs_trained_model(self) -> bool:
        return True

    @classmethod
    def grid(cls) -> Sequence[Self]:
        means = cls(placeholder="field-mean")
        return [cls(), means, cls(score="fisher"), cls(score="taylor"), cls(score="magnitude")]


@register_embedding("post-training", PostTrainingConfig)
class PostTrainingEmbedding(SeenTable):
    """A plain table `V` `[N, D]`; while it is scored, `look_up` returns its rows."""

    search_algorithm = "post-training"
    look_up: Callable[[Tensor], Tensor] | None = None

    def __init__(
        self,
        field_sizes: Sequence[int],
        config: PostTrainingConfig,
        *,
        feature_counts: Sequence[int] | None = None,
    ) -> None:
        super().__init__(field_sizes, config)
        self.config = config

    def forward(self, ids: Tensor) -> Tensor:
        if self.look_up is None:
            return functional.embedding(ids, self.weight)  # [..., D]
        distinct, places = torch.unique(ids, return_inverse=True)  # [U], [...]
        return functional.embedding(places, self.look_up(distinct))  # [..., D]

    def num_parameters(self) -> int:
        return self.weight.numel()

    def storage_bytes(self) -> int:
        return self.weight.numel() * BYTES_PER_VALUE


@register_search("post-training")
class PostTraining:
    """Scores the model as it is."""

    def __init__(self, task: SearchTask) -> None:
        self.task = task
        found = find_tables(task.model, PostTrainingEmbedding)
        self.config = next(iter(found.values())).config
        tables = {
            name: ScoredEntries.of((table,), table.field_sizes, seen=table.seen if table.seen.any() else None)
            for name, table in found.items()
        }
        self.search = PostTrainingSearch(
            task.model,
            tables,
            task.budgets,
            placeholder=self.config.placeholder,
            seed=task.seed,
            on_ticket=task.save,
        )

    def run(self) -> Sequence[MaskTicket]:
        counts, started, cpu_started = self.task.data.feature_counts, perf_counter(), process_time()
        tickets = self.search.run(
            self.task.data.train,
            self.config.score,
            None if counts is None else torch.as_tensor(counts),
            self.task.progress,
        )
        spent = {"seconds": perf_counter() - started, "cpu_seconds": process_time() - cpu_started}
        if self.task.folder is not None:
            History(self.task.folder / HISTORY).restore([{"epoch": 1, **spent}])
        return tickets
