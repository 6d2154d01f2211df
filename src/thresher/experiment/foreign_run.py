"""ForeignRun: what all searches and trainings of one `prune_model` share; each starts from a copy of the model."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from thresher.attach import AttachedTable
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.base import BYTES_PER_VALUE
from thresher.experiment.retrain import Trained, retrain_ticket, train_model
from thresher.experiment.run import tickets_folder
from thresher.search.budget import Budget
from thresher.search.find_tickets import find_tickets
from thresher.search.schedule import SearchConfig
from thresher.search.ticket import Ticket
from thresher.training.distillation import DistillationPlan, SoftLabels
from thresher.training.fit import TrainingConfig
from thresher.training.progress import Progress


@dataclass(frozen=True, kw_only=True)
class ForeignRun:
    """What all searches and trainings of one `prune_model` share; each starts from a copy of the model."""

    model: nn.Module
    data: SplitBatches
    budgets: tuple[Budget, ...]
    attach: Callable[[nn.Module], list[AttachedTable]]
    search: SearchConfig | None
    training: TrainingConfig | None
    seed: int
    folder: Path | None
    progress: Progress | None

    def ask(self, teacher: nn.Module, share: float, *, stage: str) -> SoftLabels:
        return SoftLabels.from_teacher(teacher, self.data.train, share, stage=stage, progress=self.progress)

    def find(self, teaching: DistillationPlan, soft_labels: SoftLabels | None) -> Sequence[Ticket]:
        searched, taught = copy_of_model(self.model), soft_labels if teaching.search else None
        self.attach(searched)
        return find_tickets(
            searched,
            self.data,
            self.budgets,
            self.search,
            seed=self.seed,
            folder=self._under(tickets_folder(teaching), taught),
            soft_labels=taught,
            progress=self.progress,
        )

    def train_dense(self, tables: Sequence[AttachedTable]) -> Trained:
        """The model as it is; its size is that of the tables that are searched."""
        dense = train_model(
            copy_of_model(self.model),
            self.data,
            self.training,
            seed=self.seed,
            folder=self._under("dense"),
            progress=self.progress,
        )
        num_parameters = sum(table.num_features * table.embedding_dim for table in tables)
        return replace(dense, num_parameters=num_parameters, storage_bytes=num_parameters * BYTES_PER_VALUE)

    def retrain(self, ticket: Ticket, teaching: DistillationPlan, soft_labels: SoftLabels | None) -> Trained:
        """Not tested: which way to teach may have to be decided first."""
        taught = soft_labels if teaching.retraining else None
        return retrain_ticket(
            ticket,
            copy_of_model(self.model),
            replace(self.data, test=None),
            self.training,
            seed=self.seed,
            folder=self._under(f"retrained/{ticket.budget.slug}/{teaching}", taught),
            soft_labels=taught,
            progress=self.progress,
        )

    def _under(self, name: str, soft_labels: SoftLabels | None = None) -> Path | None:
        """A stage's folder, named after its soft labels, too, since teachers may change between calls."""
        if self.folder is None:
            return None
        return self.folder / (name if soft_labels is None else f"{name}-{soft_labels.digest}")


def copy_of_model(model: nn.Module) -> nn.Module:
    """Our optimizer takes dense gradients of plain tables, also of those made for `SparseAdam`."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False
    return copied
