"""The stages of a run: each a function that calls one folder and fills one of the run's.

Every stage takes up its own unfinished work and passes over what is done, so a run killed anywhere can be resumed.
Their order: `thresher.experiment.prune`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from thresher._internal.files import read_json, write_json
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.encode.encode import encode
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import build_source
from thresher.data.table import EncodedTable
from thresher.embeddings.method_registry import build_embedding, method_name
from thresher.embeddings.uniform import UniformConfig
from thresher.errors import BudgetError
from thresher.experiment.config import RunConfig
from thresher.experiment.dense import train_dense
from thresher.experiment.fresh import new_model, shuffled_batches
from thresher.experiment.outcome import finish, point_of
from thresher.experiment.retrain import Trained, retrain_ticket
from thresher.experiment.run import Run
from thresher.models.base import CtrModel
from thresher.models.model_registry import build_model
from thresher.report.frontier import FrontierPoint
from thresher.search.budget import Budget
from thresher.search.find_tickets import find_tickets
from thresher.search.ticket import Ticket
from thresher.search.ticket_files import load_ticket
from thresher.serving.bundle import save_bundle
from thresher.training.distillation import DistillationPlan, choose_plan
from thresher.training.epochs import CHECKPOINT
from thresher.training.progress import Progress
from thresher.training.seeding import isolated_rng


class RunProgress(Progress, Protocol):
    """A `Progress` that can also show the reading of raw files."""

    def encoding(self, done: int, total: int | None, message: str) -> None: ...


def encode_data(run: Run, progress: RunProgress | None = None) -> EncodedTable:
    """Raw files → EncodedTable."""
    return encode(build_source(run.config.data), run.encoded, progress=None if progress is None else progress.encoding)


def batches(run: Run, table: EncodedTable) -> SplitBatches:
    """EncodedTable → Batches, the training rows shuffled by the run's seed."""
    return shuffled_batches(run.config, table)


def find_run_tickets(
    run: Run, table: EncodedTable, data: SplitBatches, teaching: DistillationPlan, progress: Progress | None = None
) -> Sequence[Ticket]:
    """One search → a ticket for every budget."""
    folder = run.searched(teaching)
    done = folder / "tickets.json"
    if done.exists():
        return [load_ticket(folder / slug) for slug in read_json(done)["tickets"]]
    _check_teacher_models(run.config, table)
    if teaching.search:
        train_dense(run, table, data, progress)
    tickets = _find(run, table, data, list(run.config.wanted_budgets()), teaching, progress)
    write_json(done, {"tickets": [ticket.budget.slug for ticket in tickets]})
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return tickets


def _check_teacher_models(config: RunConfig, table: EncodedTable) -> None:
    """Raise, before anything is trained, if a teacher of another kind cannot take such rows."""
    for model in config.teacher_models:
        with isolated_rng():
            one_each = [1] * len(table.schema.field_sizes)
            tables = build_embedding(one_each, UniformConfig(embedding_dim=config.embedding.embedding_dim))
            build_model(tables, model, num_dense=table.schema.num_dense)


def _find(
    run: Run,
    table: EncodedTable,
    data: SplitBatches,
    budgets: list[Budget],
    teaching: DistillationPlan,
    progress: Progress | None,
) -> Sequence[Ticket]:
    try:
        with run.large_tables():
            return find_tickets(
                new_model(run.config, table, run.config.embedding),
                data,
                budgets,
                run.config.search,
                seed=run.config.seed,
                folder=run.searched(teaching),
                soft_labels=run.load_soft_labels(teaching.search),
                progress=progress,
            )
    except BudgetError as error:
        if run.config.max_auc_drop is None or error.budget is None or len(budgets) == 1:
            raise
        # a rung of the ladder below the method's smallest form: nobody asked for that size, so it is left out
        left = [budget for budget in budgets if budget != Budget.parse(str(error.budget))]
    return _find(run, table, data, left, teaching, progress)


def choose_teaching(
    run: Run, table: EncodedTable, data: SplitBatches, progress: Progress | None = None
) -> DistillationPlan:
    """How the teachers teach: as told, or as the smallest ticket comes to the highest validation AUC."""
    chosen = run.teaching()
    if chosen is None:
        untested = replace(data, test=None)

        def validation_auc(teaching: DistillationPlan) -> float:
            tickets = find_run_tickets(run, table, data, teaching, progress)
            smallest = min(tickets, key=lambda ticket: ticket.num_parameters)
            return _retrained(run, table, untested, smallest, teaching, progress).fit.validation.auc

        trial = choose_plan(run.config.candidate_plans(), validation_auc)
        chosen = trial.best
        told = {"share": chosen.retraining, "search_share": chosen.search, "validation_auc": trial.validation_aucs}
        write_json(run.teacher, told if trial.failed is None else {**told, "failed": trial.failed})
    return chosen


def retrain_run_ticket(
    run: Run,
    table: EncodedTable,
    data: SplitBatches,
    ticket: Ticket,
    teaching: DistillationPlan,
    progress: Progress | None = None,
) -> FrontierPoint:
    """Ticket → retrained model → bundle, and its point on the frontier."""
    config, folder = run.config, run.retrained(ticket.budget)
    done = folder / "point.json"
    if not done.exists():
        trained = _retrained(run, table, data, ticket, teaching, progress)
        assert isinstance(trained.model, CtrModel)
        label = method_name(config.embedding)
        point = point_of(trained, label=label, budget=str(ticket.budget), seed=config.seed)
        encoder = RowEncoder.load(run.encoded)
        save_bundle(run.bundle(ticket.budget), trained.model, config.model, encoder, metadata=point.to_json())
        finish(folder, point)
    return FrontierPoint.from_json(read_json(done))


def _retrained(
    run: Run,
    table: EncodedTable,
    data: SplitBatches,
    ticket: Ticket,
    teaching: DistillationPlan,
    progress: Progress | None,
) -> Trained:
    config = run.config
    # rewind = "random" asks for other initial weights than the search had
    fresh = "retrain" if config.rewind == "random" else "initial"
    with run.large_tables():
        return retrain_ticket(
            ticket,
            new_model(config, table, ticket.embedding_config(config.embedding), purpose=fresh),
            data,
            config.training,
            rewind=config.rewind,
            seed=config.seed,
            folder=run.retrained(ticket.budget) / str(teaching),
            soft_labels=run.load_soft_labels(teaching.retraining),
            progress=progress,
        )
