"""prune_model(): the whole workflow on any PyTorch model, in Thresher's training loop.

To keep a training loop of your own, use `attach_` and `Searcher`; to start from raw files, use `prune`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import nn

from thresher._internal.processes import Processes, training_together
from thresher.attach.attach import AttachedTable, attach_
from thresher.attach.find_tables import Where
from thresher.data.batches.batches import DistillableSource
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError, FolderError
from thresher.experiment.effort import Effort, RetrainingConfig, StageSettings
from thresher.experiment.floor import NO_EMBEDDING
from thresher.experiment.model_workflow import (
    ModelCopies,
    ModelWorkflow,
    attach_to_copy,
    check_folder,
    warn_of_probabilities,
)
from thresher.experiment.retrain import TrainedModel
from thresher.experiment.stages import Stages
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.report.progress_display import training_progress
from thresher.report.remarks import remarks
from thresher.report.tables import frontier_html, plain_table
from thresher.search.budget import Budget, parse_budgets
from thresher.search.schedule import SearchConfig
from thresher.training.distillation import (
    DistillationPlan,
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

    If several processes of torch.distributed call it, they train together: each batch is shared among them.

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
        models=ModelCopies(model, attach),
        data=data,
        settings=settings,
        seed=seed,
        folder=None if folder is None else Path(folder),
    )
    processes = Processes.of()
    if stages.folder is not None and (processes is None or processes.is_first):
        check_folder(stages.folder, model, data)
    for teacher in teachers:
        warn_of_probabilities(teacher, data)
    tables = attach_to_copy(model, attach, data)
    with training_together(processes), training_progress(progress) as shown:
        workflow = ModelWorkflow(
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


def _point(model: TrainedModel, label: str, budget: str | None) -> FrontierPoint:
    return replace(model.point(label=label, budget=budget, seed=None), bundle_bytes=model.model_bytes)
