"""prune_model(): the whole search on a model we did not write, in our loop. Your own loop: `attach_` and `Searcher`.

Raw files and bundles are the work of `thresher.experiment.prune`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from torch import nn

from thresher.attach import AttachedTable, attach_, compact_
from thresher.attach.find_tables import Where
from thresher.data.batches.batches import DistillableSource
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError
from thresher.experiment.foreign_run import ForeignRun, copy_of_model
from thresher.experiment.given_model import check_given, check_runs_compact, warn_of_probabilities
from thresher.experiment.retrain import Trained, tested
from thresher.experiment.run import tickets_folder
from thresher.search.budget import Budget, parse_budgets
from thresher.search.schedule import SearchConfig
from thresher.search.ticket import Ticket
from thresher.training.distillation import (
    DistillationPlan,
    SoftLabels,
    candidate_plans,
    check_distillation,
    choose_plan,
)
from thresher.training.fit import TrainingConfig
from thresher.training.progress import Progress


@dataclass(frozen=True)
class PrunedModels:
    """A foreign model at several sizes.

    Attributes:
        tables: the tables that were searched.
        dense: the model trained as it is, for comparison; None if that was not asked for.
        pruned: budget as written → the model retrained at that size, with compact tables.
        teaching: the part of the labels that teachers made up in the search, and in retraining.
    """

    tables: list[AttachedTable]
    dense: Trained | None
    pruned: Mapping[str, Trained]
    teaching: DistillationPlan


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
    """Search a model's embedding tables and retrain it at each budget; the model given is left as it is.

    Args:
        model: gives logits `[B]` or `[B, 1]` for `model(*batch.inputs)`; its weights now are the initial ones.
        data: any batches the model takes, for training and validation, and for a test at the end.
        budgets: parameters (`30k`), shares (`5%`) or bytes (`1MB`) over all its searched tables together.
        where: which tables, as for `attach_`; so is `min_features`.
        with_dense: train the unpruned model too.
        teacher_share: the part of each training label that a teacher's prediction makes up in retraining; by default 1
            if that retrains the smallest budget to a validation AUC at least 0.001 higher, else 0; and 0 where there is
            no teacher or the batches cannot be relabelled (`TensorBatches` can).
        distill_search: whether the search trains on soft labels, too; by default tried where distillation helps.
        teachers: models you have trained on the same rows, called as `model` is. What teaches is the mean of what they
            and the unpruned model predict.
        folder: histories, tickets and checkpoints go there; work found there is taken up again, if it is of the same
            model with the same initial weights (seed its making) and of the same rows; else it is refused.
    """
    if teacher_share and not (with_dense or teachers):
        raise ConfigError(
            f"teacher_share is {teacher_share}, but there is no teacher: leave with_dense = True, or give teachers"
        )
    if teachers and teacher_share == 0:
        raise ConfigError("teachers are given, but teacher_share is 0: nobody teaches; leave one out")
    if teacher_share is None and not (teachers or (with_dense and isinstance(data.train, DistillableSource))):
        teacher_share = 0.0
    check_distillation(teacher_share, distill_search)
    ways = candidate_plans(teacher_share, distill_search)
    run = ForeignRun(
        model=model,
        data=data,
        budgets=parse_budgets(budgets),
        attach=partial(attach_, config=config, where=where, min_features=min_features),
        search=search,
        training=training,
        seed=seed,
        folder=None if folder is None else Path(folder),
        progress=progress,
    )
    if run.folder is not None:
        check_given(run.folder, model, data)
    dense, soft_labels, share = None, None, ways[-1].retraining
    for teacher in teachers:
        warn_of_probabilities(teacher, data)
    parts = [run.ask(teacher, share, stage=f"teacher {number}") for number, teacher in enumerate(teachers, 1)]
    found: dict[str, Sequence[Ticket]] = {}
    tried: dict[DistillationPlan, dict[Budget, Trained]] = {}

    def tickets_of(teaching: DistillationPlan) -> Sequence[Ticket]:
        if tickets_folder(teaching) not in found:
            found[tickets_folder(teaching)] = run.find(teaching, soft_labels)
        return found[tickets_folder(teaching)]

    def validation_auc(teaching: DistillationPlan) -> float:
        smallest = min(tickets_of(teaching), key=lambda ticket: ticket.num_parameters)
        trained = run.retrain(smallest, teaching, soft_labels)
        tried[teaching] = {smallest.budget: trained}
        return trained.fit.validation.auc

    attached = copy_of_model(model)
    tables = run.attach(attached)
    check_runs_compact(attached, tables, data)
    del attached
    if not ways[0].search:  # before dense training, unless that is to teach it: impossible settings are told at once
        tickets_of(ways[0])
    if with_dense:
        dense = run.train_dense(tables)
        warn_of_probabilities(dense.model, data)
        if share:
            parts.append(run.ask(dense.model, share, stage="dense predicts"))
    if parts:
        soft_labels = SoftLabels.mean(parts)
        parts.clear()
    teaching = ways[0] if len(ways) == 1 else choose_plan(ways, validation_auc).best
    tickets, done = tickets_of(teaching), tried.get(teaching, {})
    found.clear()  # what was not chosen is of no more use
    tried.clear()
    pruned = {}
    for ticket in tickets:
        trained = done.get(ticket.budget) or run.retrain(ticket, teaching, soft_labels)
        pruned[str(ticket.budget)] = _compacted(tested(trained.model, data, trained.fit))
    return PrunedModels(tables, dense, pruned, teaching)


def _compacted(trained: Trained) -> Trained:
    """With compact tables, and their sizes: one table held by two modules counts once."""
    sizes = compact_(trained.model)
    return replace(
        trained,
        num_parameters=sum(size.num_parameters for size in sizes),
        storage_bytes=sum(size.storage_bytes for size in sizes),
    )
