"""prune_trained(): prune a trained PyTorch model without training; one pass over its training rows."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from thresher.attach.attach import attach_
from thresher.attach.compact_tables import CompactedTable, compact_
from thresher.attach.find_tables import Where
from thresher.data.batches.batches import BatchSource
from thresher.report.progress_display import training_progress
from thresher.search.budget import Budgets, parse_budgets
from thresher.search.entry_scores import Placeholder, Score, ScoredEntries
from thresher.search.post_training import PostTrainingSearch
from thresher.search.searched_table import searched_tables
from thresher.training.progress import Progress


@dataclass(frozen=True)
class CompactModel:
    """A model with compact tables.

    Attributes:
        tables: its compact tables and their sizes.
    """

    model: nn.Module
    tables: list[CompactedTable]

    @property
    def num_parameters(self) -> int:
        return sum(table.num_parameters for table in self.tables)

    @property
    def storage_bytes(self) -> int:
        return sum(table.storage_bytes for table in self.tables)


def prune_trained(
    model: nn.Module,
    batches: BatchSource,
    budgets: Budgets,
    *,
    score: Score = "shapley",
    placeholder: Placeholder = "zeros",
    where: Where | None = None,
    min_features: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Mapping[str, CompactModel]:
    """Prune a trained model at once to each budget, without training; the model itself is not changed.

    It takes about as long as one epoch, for any number of budgets. Small budgets need training: `prune_model` with
    `trained=True` starts from the same model.

    Args:
        model: returns logits `[B]` or `[B, 1]` for `model(*batch.inputs)`.
        batches: training rows with labels, such as `TensorBatches`.
        budgets: parameters (`30k`), shares (`5%`) or bytes (`1MB`) over all pruned tables together.
        score: how entries are scored: `shapley`, `fisher`, `taylor`, or `magnitude`, which reads no rows.
        placeholder: what a pruned entry reads as: `zeros`, or `field-mean`, the mean vector of its table, weighted by
            how often each row is looked up.
        where: which tables to prune, as for `attach_`, like `min_features`.
        seed: of the order in which Shapley values are computed.
        progress: a display; by default bars on a terminal, lines in a notebook, and nothing elsewhere.

    Returns:
        Budget as written → a copy of the model with compact, frozen tables.
    """
    searched = copy.deepcopy(model)
    attach_(searched, where=where, min_features=min_features, trained=True)
    tables = {
        name: ScoredEntries.of(table.holders, (table.shape[0],), padding_id=table.padding_id)
        for name, table in searched_tables(searched).items()
    }
    wanted = parse_budgets(budgets)
    search = PostTrainingSearch(searched, tables, wanted, placeholder=placeholder, seed=seed)
    pruned = {}
    with training_progress(progress) as shown:
        tickets = search.run(batches, score, progress=shown)
    for ticket in tickets:
        compact = copy.deepcopy(model)
        ticket.apply_(compact, rewind="final")
        pruned[str(ticket.budget)] = CompactModel(compact, compact_(compact))
    return {str(budget): pruned[str(budget)] for budget in wanted}
