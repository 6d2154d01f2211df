"""prune_model(): the whole workflow on any PyTorch model, in Thresher's training loop.

To keep a training loop of your own, use `attach_` and `Searcher`; to start from raw files, use `prune`.
"""

import copy
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torch import nn

from thresher._internal.files import read_json, write_json
from thresher.attach.attach import AttachedTable, attach_
from thresher.attach.compact_tables import compact_, put_compact_
from thresher.attach.find_tables import Where
from thresher.data.batches.batches import DistillableSource
from thresher.data.batches.split_batches import SplitBatches, first_batch_digest
from thresher.embeddings.base import BYTES_PER_VALUE
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError, FolderError, warn_user
from thresher.experiment.retrain import TrainedModel
from thresher.experiment.run_folder import tickets_folder
from thresher.experiment.workflow import Stages, Workflow
from thresher.search.budget import Budget, parse_budgets
from thresher.search.schedule import SearchConfig
from thresher.search.ticket import Ticket
from thresher.training.checkpoint import isolated_rng
from thresher.training.distillation import (
    DistillationPlan,
    SoftLabels,
    candidate_plans,
    check_distillation,
    distillable,
)
from thresher.training.epochs import CHECKPOINT
from thresher.training.fit import TrainingConfig
from thresher.training.loop import predict
from thresher.training.progress import Progress

MIN_OUTPUTS = 32
"""With fewer outputs, logits may lie between 0 and 1 by chance."""
INPUTS = "inputs.json"
"""Digests of the model and rows that a folder of `prune_model` belongs to."""


@dataclass(frozen=True)
class PrunedModels:
    """The result of `prune_model`.

    Attributes:
        tables: the tables that were searched.
        dense: the trained unpruned model; None without `with_dense`.
        pruned: budget as written → the retrained model with compact tables.
        distillation: weight of teacher predictions in the labels of search and retraining.
    """

    tables: list[AttachedTable]
    dense: TrainedModel | None
    pruned: Mapping[str, TrainedModel]
    distillation: DistillationPlan


def prune_model(
    model: nn.Module,
    data: SplitBatches,
    budgets: str | Iterable[str | int | Budget],
    config: PepConfig | None = None,
    *,
    where: Where | None = None,
    min_features: int = 0,
    search: SearchConfig | None = None,
    training: TrainingConfig | None = None,
    with_dense: bool = True,
    teacher_share: float | None = None,
    distill_search: bool | None = None,
    teachers: Sequence[nn.Module] = (),
    seed: int = 0,
    folder: str | Path | None = None,
    progress: Progress | None = None,
) -> PrunedModels:
    """Search a model's embedding tables and retrain it at each budget; the model itself is not changed.

    Args:
        model: returns logits `[B]` or `[B, 1]` for `model(*batch.inputs)`; its present weights are the initial ones.
        data: batches for training and validation, and for a test at the end.
        budgets: parameters (`30k`), shares (`5%`) or bytes (`1MB`) over all searched tables together.
        where: which tables to search, as for `attach_`, like `min_features`.
        with_dense: also train the unpruned model.
        teacher_share: weight of teacher predictions in the labels of retraining. By default 1 if that raises the
            validation AUC of the smallest budget by at least 0.001, else 0; and 0 if there is no teacher or the batches
            cannot be relabelled (`TensorBatches` can).
        distill_search: whether the search trains on soft labels, too; by default tried where distillation helps.
        teachers: models trained on the same rows, called like `model`. Soft labels are the mean prediction of these and
            of the unpruned model.
        folder: for histories, tickets and checkpoints. Work found there is resumed if it belongs to the same model,
            initial weights and rows; otherwise it is an error.
    """
    wanted = parse_budgets(budgets)
    plans = _plans(data, teacher_share, distill_search, with_dense=with_dense, teachers=teachers)
    attach = partial(attach_, config=config, where=where, min_features=min_features)
    stages = Stages(
        models=_ModelCopies(model, attach),
        data=data,
        search=SearchConfig() if search is None else search,
        training=TrainingConfig() if training is None else training,
        seed=seed,
        folder=None if folder is None else Path(folder),
        progress=progress,
    )
    if stages.folder is not None:
        _check_folder(stages.folder, model, data)
    for teacher in teachers:
        _warn_of_probabilities(teacher, data)
    tried = _copy(model)
    tables = attach(tried)
    _check_runs_compact(tried, tables, data)
    del tried
    workflow = _ModelWorkflow(
        stages=stages,
        budgets=wanted,
        plans=plans,
        tables=tables,
        teachers=teachers,
        with_dense=with_dense,
    )
    result = workflow.run()
    pruned = {str(budget): trained for budget, trained in result.pruned.items()}
    return PrunedModels(tables, result.dense, pruned, result.plan)


def _plans(
    data: SplitBatches,
    teacher_share: float | None,
    distill_search: bool | None,
    *,
    with_dense: bool,
    teachers: Sequence[nn.Module],
) -> list[DistillationPlan]:
    if teacher_share and not (with_dense or teachers):
        raise ConfigError(
            f"teacher_share is {teacher_share}, but there is no teacher. Set with_dense = True, or pass teachers."
        )
    if teachers and teacher_share == 0:
        raise FolderError("teachers are given, but teacher_share is 0 (no distillation). Remove one of the two.")
    if teacher_share is None and not (teachers or (with_dense and isinstance(data.train, DistillableSource))):
        teacher_share = 0.0
    check_distillation(teacher_share, distill_search)
    plans = candidate_plans(teacher_share, distill_search)
    if plans[-1].retraining:
        distillable(data.train)  # raises before anything is trained
    return plans


@dataclass(frozen=True)
class _ModelCopies:
    """The `ModelBuilder` of a user's model: copies of it."""

    model: nn.Module
    attach: Callable[[nn.Module], list[AttachedTable]]

    def dense(self) -> nn.Module:
        return _copy(self.model)

    def searched(self) -> nn.Module:
        copied = _copy(self.model)
        self.attach(copied)
        return copied

    def for_ticket(self, ticket: Ticket) -> nn.Module:
        return _copy(self.model)


def _copy(model: nn.Module) -> nn.Module:
    """A copy whose tables have dense gradients, which the training loop's optimizer needs."""
    copied = copy.deepcopy(model)
    for module in copied.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = False
    return copied


@dataclass(kw_only=True)
class _ModelWorkflow(Workflow[TrainedModel]):
    """Keeps trained models in memory."""

    tables: Sequence[AttachedTable]
    teachers: Sequence[nn.Module]
    with_dense: bool
    _labels: SoftLabels | None = None
    _tickets: dict[float, Sequence[Ticket]] = field(default_factory=dict)

    def train_dense(self) -> TrainedModel | None:
        """The model as it is; its size is that of the searched tables."""
        if not self.with_dense:
            return None
        dense = self.stages.train_dense()
        num_parameters = sum(table.num_features * table.embedding_dim for table in self.tables)
        _warn_of_probabilities(dense.model, self.stages.data)
        return replace(dense, num_parameters=num_parameters, storage_bytes=num_parameters * BYTES_PER_VALUE)

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

    def soft_labels(self, share: float) -> SoftLabels | None:
        return self._labels if share else None

    def find_tickets(self, plan: DistillationPlan) -> Sequence[Ticket]:
        if plan.search not in self._tickets:
            labels = self.soft_labels(plan.search)
            name = _named_after(tickets_folder(plan), labels)
            self._tickets[plan.search] = self.stages.find_tickets(self.budgets, name, soft_labels=labels)
        return self._tickets[plan.search]

    def retrain(self, ticket: Ticket, plan: DistillationPlan) -> TrainedModel:
        labels = self.soft_labels(plan.retraining)
        name = _named_after(f"retrained/{ticket.budget.slug}/{plan}", labels)
        return self.stages.retrain(ticket, name, soft_labels=labels)

    def keep(self, ticket: Ticket, trained: TrainedModel) -> TrainedModel:
        """The model with compact tables, and their size; a table shared by two modules counts once."""
        sizes = compact_(trained.model)
        return replace(
            trained,
            num_parameters=sum(size.num_parameters for size in sizes),
            storage_bytes=sum(size.storage_bytes for size in sizes),
        )


def _named_after(name: str, soft_labels: SoftLabels | None) -> str:
    """The name of a stage's folder. It includes the soft labels, since teachers may change between calls."""
    return name if soft_labels is None else f"{name}-{soft_labels.digest}"


def _check_folder(folder: Path, model: nn.Module, data: SplitBatches) -> None:
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


def _check_runs_compact(attached: nn.Module, tables: Sequence[AttachedTable], data: SplitBatches) -> None:
    """Raise if a model uses an attribute that the compact tables of retraining do not have, such as a method.

    Args:
        attached: a copy of the model; its tables are replaced by empty compact ones.
    """
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


def _warn_of_probabilities(model: nn.Module, data: SplitBatches) -> None:
    """Warn if a model returns probabilities: training applies a sigmoid to its outputs."""
    for _, outputs in predict(model, data.validation):
        if len(outputs) >= MIN_OUTPUTS and float(outputs.min()) >= 0.0 and float(outputs.max()) <= 1.0:
            warn_user(
                f"{type(model).__qualname__} returns only values between 0 and 1, which look like probabilities, where "
                "logits are expected. Wrap it: torch.logit(model(…), eps=1e-6).",
            )
        break
