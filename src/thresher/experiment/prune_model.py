"""prune_model(): the whole workflow on any PyTorch model, in Thresher's training loop.

To keep a training loop of your own, use `attach_` and `Searcher`; to start from raw files, use `prune`.
"""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torch import Tensor, nn

from thresher.attach.attach import AttachedTable, attach_
from thresher.attach.compact_tables import compact_
from thresher.attach.find_tables import Where
from thresher.data.batches.batches import DistillableSource
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.base import BYTES_PER_VALUE, FieldEmbedding
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError, FolderError
from thresher.experiment.dense_start import DenseStart
from thresher.experiment.effort import Effort, RetrainingConfig, StageSettings
from thresher.experiment.floor import NO_EMBEDDING, Floor
from thresher.experiment.model_checks import check_folder, check_runs_compact, warn_of_probabilities
from thresher.experiment.retrain import TrainedModel, count_model_bytes, evaluate_trained
from thresher.experiment.run.run_folder import tickets_folder
from thresher.experiment.stages import Stages
from thresher.experiment.workflow import Workflow
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.report.html import frontier_html
from thresher.report.progress_display import training_progress
from thresher.report.remarks import remarks
from thresher.report.tables import plain_table
from thresher.search.budget import Budget, parse_budgets
from thresher.search.schedule import SearchConfig
from thresher.search.ticket import Ticket
from thresher.training.distillation import (
    DistillationPlan,
    SoftLabels,
    candidate_plans,
    check_distillation,
    distillable,
)
from thresher.training.fit import TrainingConfig
from thresher.training.progress import Progress


@dataclass(frozen=True)
class PrunedModels:
    """The result of `prune_model`.

    Attributes:
        tables: the tables that were searched.
        dense: the trained unpruned model; None without `with_dense`.
        pruned: budget as written → the retrained model with compact tables.
        distillation: weight of teacher predictions in the labels of search and retraining.
        floor: the model whose searched tables are zero, trained to convergence. None unless the model has tables of
            width 1 (first-order weights) and all others are searched.
    """

    tables: list[AttachedTable]
    dense: TrainedModel | None
    pruned: Mapping[str, TrainedModel]
    distillation: DistillationPlan
    floor: TrainedModel | None = None

    @property
    def frontier(self) -> Frontier:
        """Sizes and metrics of all models; `bundle_bytes` are the bytes of all weights."""
        points = [_point(model, "pep", budget) for budget, model in self.pruned.items()]
        dense = None if self.dense is None else _point(self.dense, "dense", None)
        floor = None if self.floor is None else _point(self.floor, NO_EMBEDDING, None)
        return Frontier(points=tuple(points), dense=dense, floor=floor)

    def __str__(self) -> str:
        return "\n".join([plain_table(self.frontier), *remarks(self.frontier)])

    def _repr_html_(self) -> str:
        """The table, in a notebook."""
        return frontier_html(self.frontier)


def prune_model(
    model: nn.Module,
    data: SplitBatches,
    budgets: str | Iterable[str | int | Budget],
    config: PepConfig | None = None,
    *,
    where: Where | None = None,
    min_features: int = 0,
    effort: Effort = "standard",
    trained: bool = False,
    search: SearchConfig | None = None,
    training: TrainingConfig | None = None,
    retraining: RetrainingConfig | None = None,
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
        effort: how much training is spent, as in `RunConfig`.
        trained: whether `model` is already trained. Then it is the dense model as it is, and the search starts from it.
        with_dense: also train the unpruned model. Without it, and without `trained`, the search starts from the initial
            weights.
        teacher_share: weight of teacher predictions in the labels of retraining. By default 1 if that raises validation
            AUC by at least 0.001 in a short trial, else 0; and 0 if there is no teacher or the batches cannot be
            relabelled (`TensorBatches` can).
        distill_search: whether the search trains on soft labels, too; by default as retraining does.
        teachers: models trained on the same rows, called like `model`. Soft labels are the mean prediction of these and
            of the unpruned model.
        folder: for histories, tickets and checkpoints. Work found there is resumed if it belongs to the same model,
            initial weights and rows; otherwise it is an error.
        progress: a display; by default bars on a terminal, lines in a notebook, and nothing elsewhere.
    """
    wanted = parse_budgets(budgets)
    settings = StageSettings(
        effort=effort,
        search=SearchConfig() if search is None else search,
        training=TrainingConfig() if training is None else training,
        retraining=RetrainingConfig() if retraining is None else retraining,
        can_start_dense=(config is None or config.can_start_dense) and (with_dense or trained),
    )
    plans = _plans(data, settings, teacher_share, distill_search, with_dense=with_dense or trained, teachers=teachers)
    attach = partial(attach_, config=config, where=where, min_features=min_features, trained=trained)
    stages = Stages(
        models=_ModelCopies(model, attach),
        data=data,
        settings=settings,
        seed=seed,
        folder=None if folder is None else Path(folder),
    )
    if stages.folder is not None:
        check_folder(stages.folder, model, data)
    for teacher in teachers:
        warn_of_probabilities(teacher, data)
    tried = copy.deepcopy(model)
    tables = attach(tried)
    check_runs_compact(tried, tables, data)
    del tried
    with training_progress(progress) as shown:
        workflow = _ModelWorkflow(
            stages=replace(stages, progress=shown),
            budgets=wanted,
            plans=plans,
            tables=tables,
            teachers=teachers,
            with_dense=with_dense or trained,
            trained=trained,
        )
        result = workflow.run()
    pruned = {str(budget): trained for budget, trained in result.pruned.items()}
    return PrunedModels(tables, result.dense, pruned, result.plan, result.floor)


def _plans(
    data: SplitBatches,
    settings: StageSettings,
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
    if distill_search is None and settings.start == "dense":
        distill_search = True
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
        return copy.deepcopy(self.model)

    def searched(self) -> nn.Module:
        copied = copy.deepcopy(self.model)
        self.attach(copied)
        return copied

    def for_ticket(self, ticket: Ticket) -> nn.Module:
        return copy.deepcopy(self.model)


@dataclass(kw_only=True)
class _ModelWorkflow(Workflow[TrainedModel]):
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


def _point(model: TrainedModel, label: str, budget: str | None) -> FrontierPoint:
    return replace(model.point(label=label, budget=budget, seed=None), bundle_bytes=model.model_bytes)


def _without(model_bytes: int, tables: Iterable[Tensor]) -> int:
    return model_bytes - sum(table.nbytes for table in tables)


def _named_after(name: str, soft_labels: SoftLabels | None) -> str:
    """The name of a stage's folder. It includes the soft labels, since teachers may change between calls."""
    return name if soft_labels is None else f"{name}-{soft_labels.digest}"
