"""find_tickets(): one search, a ticket for every budget."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from thresher.embeddings.base import FieldEmbedding
from thresher.errors import AttachError, ConfigError
from thresher.search.budget import Budget, parse_budgets
from thresher.search.config import SearchConfig
from thresher.search.task import SearchTask, search_algorithm
from thresher.search.ticket import Ticket
from thresher.training.distillation import SoftLabels
from thresher.training.progress import Progress, Renamed

if TYPE_CHECKING:
    from thresher.data.batches.split_batches import SplitBatches


def find_tickets(
    model: nn.Module,
    data: "SplitBatches",
    budgets: str | Iterable[str | int | Budget],
    config: SearchConfig | None = None,
    *,
    seed: int = 0,
    folder: Path | None = None,
    soft_labels: SoftLabels | None = None,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Sequence[Ticket]:
    """Search `model` once and cut a ticket for each budget, largest first.

    The model is trained and pruned on the way; its state when this is called is what the tickets rewind to.

    Args:
        data: its training and validation splits; the test split is not touched.
        budgets: `"50k,2%,1MB"` or a list; parameters, shares or bytes over all searched tables together.
        seed: of the randomness inside training; initial weights and batch order are the caller's.
        folder: tickets, history and a checkpoint go there as they come; a search found there is taken up again.
        soft_labels: targets of the training rows that replace their labels.
        should_stop: called after every step; when it returns True, the checkpoint is written and `TimeLimitReached` is
            raised.
    """
    config = SearchConfig() if config is None else config
    if soft_labels is not None:
        data, config = soft_labels.relabel(data), soft_labels.scale_decay(config)
        progress = Renamed(progress, "{}, soft labels")
    task = SearchTask(
        model=model,
        data=data,
        budgets=parse_budgets(budgets),
        config=config,
        seed=seed,
        decay_share=1.0 if soft_labels is None else 1 - soft_labels.teacher_share,
        folder=folder,
        progress=progress,
        should_stop=should_stop,
    )
    return search_algorithm(_declared_algorithm(model))(task)


def _declared_algorithm(model: nn.Module) -> str:
    declared = {module.search_algorithm for module in model.modules() if isinstance(module, FieldEmbedding)}
    if not declared:
        raise AttachError("the model has no embedding to search; build it with PepConfig or call attach_ on it first")
    if len(declared) > 1:
        raise ConfigError(f"the model's tables ask for different searches: {', '.join(sorted(declared))}")
    return declared.pop()
