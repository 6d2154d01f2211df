"""The workflow of `prune_model`, on copies of a user's model that stay in memory, and the checks before it."""

import copy
import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor, nn

from thresher._internal.storage.files import read_json, write_json
from thresher.attach.attach import AttachedTable
from thresher.attach.compact_tables import compact_, put_compact_
from thresher.data.batches.split_batches import SplitBatches, first_batch_digest
from thresher.embeddings.base import BYTES_PER_VALUE, FieldEmbedding
from thresher.errors import ConfigError, warn_user
from thresher.experiment.dense_start import DenseStart
from thresher.experiment.floor import Floor
from thresher.experiment.retrain import TrainedModel, count_model_bytes, evaluate_trained
from thresher.experiment.run.run_folder import tickets_folder
from thresher.experiment.workflow import Workflow
from thresher.search.ticket import Ticket
from thresher.training.checkpoint import isolated_rng
from thresher.training.distillation import DistillationPlan, SoftLabels
from thresher.training.epoch import predict
from thresher.training.run_state import CHECKPOINT

MIN_OUTPUTS = 32
"""With fewer outputs, logits may lie between 0 and 1 by chance."""
INPUTS = "inputs.json"
"""Digests of the model and rows that a folder of `prune_model` belongs to."""


@dataclass(frozen=True)
class ModelCopies:
    """The `ModelBuilder` of a user's model: copies of it."""

    model: nn.Module
    attach: Callable[[nn.Module], list[AttachedTable]]

    def dense(self) -> nn.Module:
        return copy.deepcopy(self.model)

    def searched(self) -> nn.Module:
        copied = copy.deepcopy(self.model)
        self.attach(copied)
        return copied

    def for_ticket(self, ticket: Ticket) -> nn.Module:
        return copy.deepcopy(self.model)


@dataclass(kw_only=True)
class ModelWorkflow(Workflow[TrainedModel]):
    """Keeps trained models in memory."""

    tables: Sequence[AttachedTable]
    teachers: Sequence[nn.Module]
    with_dense: bool
    trained: bool
    _floor: Floor | None = None
    _start: DenseStart | None = None
    _labels: SoftLabels | None = None
    _tickets: dict[float, Sequence[Ticket]] = field(default_factory=dict)

    def train_floor(self) -> TrainedModel | None:
        """The model without its searched tables, if these are all of its tables but first-order weights."""
        model = self.stages.models.dense()
        searched = [model.get_submodule(table.name).get_parameter("weight") for table in self.tables]
        tables = [m for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag | FieldEmbedding)]
        others = [table for table in tables if not any(getattr(table, "weight", None) is weight for weight in searched)]
        if not others or any(table.embedding_dim > 1 for table in others):
            return None
        for weight in searched:
            weight.requires_grad_(False).zero_()
        floor = self.stages.train_floor(model)
        self._floor = Floor.of(floor.model, self.stages.data.validation)
        return replace(floor, num_parameters=0, storage_bytes=0, model_bytes=_without(floor.model_bytes, searched))

    def floor(self) -> Floor | None:
        return self._floor

    def train_dense(self) -> TrainedModel | None:
        """The model as it is; its size is that of the searched tables."""
        if not self.with_dense:
            return None
        stages = self.stages
        dense = evaluate_trained(stages.models.dense(), stages.data) if self.trained else stages.train_dense()
        if self.stages.settings.start == "dense":
            self._start = DenseStart.of(dense.model, None if self.trained else dense.fit.num_epochs)
        num_parameters = sum(table.num_features * table.embedding_dim for table in self.tables)
        warn_of_probabilities(dense.model, self.stages.data)
        storage_bytes = num_parameters * BYTES_PER_VALUE
        return self.over_floor(replace(dense, num_parameters=num_parameters, storage_bytes=storage_bytes))

    def make_soft_labels(self, dense: TrainedModel | None) -> None:
        share = self.plans[-1].retraining
        teachers = {f"teacher {number}": teacher for number, teacher in enumerate(self.teachers, 1)}
        if dense is not None:
            teachers["dense predicts"] = dense.model
        if share and teachers:
            train, progress = self.stages.data.train, self.stages.progress
            self._labels = SoftLabels.mean(
                [
                    SoftLabels.from_teacher(teacher, train, share, stage=stage, progress=progress)
                    for stage, teacher in teachers.items()
                ]
            )

    def dense_start(self) -> DenseStart | None:
        return self._start

    def soft_labels(self, share: float) -> SoftLabels | None:
        return self._labels if share else None

    def find_tickets(self, plan: DistillationPlan) -> Sequence[Ticket]:
        if plan.search not in self._tickets:
            labels = self.soft_labels(plan.search)
            name = _named_after(tickets_folder(plan), labels)
            self._tickets[plan.search] = self.stages.find_tickets(
                self.budgets, name, start=self._start, soft_labels=labels
            )
        return self._tickets[plan.search]

    def retrain(self, ticket: Ticket, plan: DistillationPlan) -> TrainedModel:
        labels = self.soft_labels(plan.retraining)
        name = _named_after(f"retrained/{ticket.budget.slug}/{plan}", labels)
        return self.stages.retrain(ticket, name, start=self._start, soft_labels=labels)

    def keep(self, ticket: Ticket, trained: TrainedModel) -> TrainedModel:
        """The model with compact tables, and their size; a table shared by two modules counts once."""
        sizes = compact_(trained.model)
        return replace(
            trained,
            num_parameters=sum(size.num_parameters for size in sizes),
            storage_bytes=sum(size.storage_bytes for size in sizes),
            model_bytes=count_model_bytes(trained.model),
        )


def _without(model_bytes: int, tables: Iterable[Tensor]) -> int:
    return model_bytes - sum(table.nbytes for table in tables)


def _named_after(name: str, soft_labels: SoftLabels | None) -> str:
    """The name of a stage's folder. It includes the soft labels, since teachers may change between calls."""
    return name if soft_labels is None else f"{name}-{soft_labels.digest}"


def check_folder(folder: Path, model: nn.Module, data: SplitBatches) -> None:
    """Raise if a folder holds work on another model or other rows, which equal shapes would not reveal."""
    structure = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(model))  # without memory addresses of functions
    with isolated_rng():
        inputs = {
            "model": hashlib.sha256(structure.encode()).hexdigest()[:16],
            "training rows": first_batch_digest(data.train),
            "validation rows": first_batch_digest(data.validation),
        }
    path, has_work = folder / INPUTS, any(folder.rglob(CHECKPOINT))
    if has_work and path.exists():
        before = read_json(path)
        if changed := [name for name, digest in inputs.items() if before.get(name) != digest]:
            raise ConfigError(
                f"{folder} holds work on another model or other rows (changed: {', '.join(changed)}). Choose another "
                "folder, or delete this one."
            )
    write_json(path, inputs)


def attach_to_copy(
    model: nn.Module, attach: Callable[[nn.Module], list[AttachedTable]], data: SplitBatches
) -> list[AttachedTable]:
    """The tables of a model that are searched, found in a copy of it.

    Raises if the model uses an attribute that the compact tables of retraining do not have, such as a method.
    """
    attached = copy.deepcopy(model)
    tables = attach(attached)
    for table in tables:
        nothing = attached.get_submodule(table.name).get_parameter("weight").new_empty(0)
        put_compact_(attached, table.name, nothing.long(), nothing)
    with isolated_rng():
        try:
            next(predict(attached, data.validation), None)
        except AttributeError as error:
            raise ConfigError(
                f"{type(attached).__qualname__} does not run with the compact tables of retraining: {error}"
            ) from error
    return tables


def warn_of_probabilities(model: nn.Module, data: SplitBatches) -> None:
    """Warn if a model returns probabilities: training applies a sigmoid to its outputs."""
    for _, _, outputs in predict(model, data.validation):
        if len(outputs) >= MIN_OUTPUTS and float(outputs.min()) >= 0.0 and float(outputs.max()) <= 1.0:
            warn_user(
                f"{type(model).__qualname__} returns only values between 0 and 1, which look like probabilities, where "
                "logits are expected. Wrap it: torch.logit(model(…), eps=1e-6).",
            )
        break
