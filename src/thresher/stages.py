"""The stages of a run: each a function that calls one folder and fills one of the run's.

Every stage takes up its own unfinished work and passes over what is done, so a run killed anywhere can be resumed.
Their order: `thresher.pipeline`.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from torch import nn

from thresher.attach import attach_
from thresher.data.encode import encode
from thresher.data.encoded_table import EncodedTable
from thresher.data.row_encoder import RowEncoder
from thresher.data.sources import build_source
from thresher.data.split_batches import SplitBatches
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.pep import PepConfig
from thresher.embeddings.registry import build_embedding, method_name
from thresher.embeddings.uniform import UniformConfig
from thresher.errors import BudgetError
from thresher.export.bundle import save_bundle
from thresher.files import read_json, write_json
from thresher.models.base import CtrModel
from thresher.models.registry import build_model
from thresher.report.frontier import FrontierPoint
from thresher.retrain import Trained, retrain_ticket, train_model
from thresher.runs import Run, RunConfig
from thresher.search.find_tickets import find_tickets
from thresher.teaching import Teaching, try_teachings
from thresher.tickets.budget import Budget
from thresher.tickets.store import load_ticket
from thresher.tickets.ticket import Ticket
from thresher.training.epochs import CHECKPOINT
from thresher.training.lesson import Lesson
from thresher.training.progress import Progress
from thresher.training.seeding import derive_seed, isolated_rng, seed_all


class RunProgress(Progress, Protocol):
    """A `Progress` that can also show the reading of raw files."""

    def encoding(self, done: int, total: int | None, message: str) -> None: ...


def encode_data(run: Run, progress: RunProgress | None = None) -> EncodedTable:
    """Raw files → EncodedTable."""
    return encode(build_source(run.config.data), run.encoded, progress=None if progress is None else progress.encoding)


def batches(run: Run, table: EncodedTable) -> SplitBatches:
    """EncodedTable → Batches, the training rows shuffled by the run's seed."""
    return _shuffled(run.config, table)


def _shuffled(config: RunConfig, table: EncodedTable) -> SplitBatches:
    return SplitBatches.of(table, config.training.batch_size, seed=derive_seed(config.seed, "batches"))


def train_dense(run: Run, table: EncodedTable, data: SplitBatches, progress: Progress | None = None) -> FrontierPoint:
    """The model with a plain table of the same width: what pruning is measured against, and the first to teach it."""
    config, done = run.config, run.dense / "point.json"
    labels = run.teacher_labels(1) if config.largest_share else None
    has_spoken = labels is None or labels.exists() or run.soft_labels.exists()
    if not done.exists() or not has_spoken:
        trained = _train_plain(run, config, table, data, run.dense, stage="dense", labels=labels, progress=progress)
        _finish(run.dense, _point(trained, label="dense", budget=None, seed=config.seed))
        del trained  # its table is as large as that of the next teacher
    if config.largest_share and not run.soft_labels.exists():
        _train_other_teachers(run, table, progress)
    return FrontierPoint.from_json(read_json(done))


def _train_other_teachers(run: Run, table: EncodedTable, progress: Progress | None) -> None:
    """Each of a seed of its own and never tested; then the mean of what all say, the dense model, too."""
    teachers = dict(enumerate(run.config.all_teachers(), 1))
    for number in range(2, len(teachers) + 1):
        labels = run.teacher_labels(number)
        if not labels.exists():
            own = derive_seed(run.config.seed, "teacher", number)
            config = replace(run.config, model=teachers[number], seed=own)
            untested, stage = replace(_shuffled(config, table), test=None), f"teacher {number} of {len(teachers)}"
            _train_plain(run, config, table, untested, labels.parent, stage=stage, labels=labels, progress=progress)
        (labels.parent / CHECKPOINT).unlink(missing_ok=True)
    lessons = [Lesson.load(run.teacher_labels(number), run.config.largest_share) for number in teachers]
    Lesson.mean(lessons).save(run.soft_labels)


def _train_plain(
    run: Run,
    config: RunConfig,
    table: EncodedTable,
    data: SplitBatches,
    folder: Path,
    *,
    stage: str,
    labels: Path | None,
    progress: Progress | None,
) -> Trained:
    """Train a model with a plain table and, where it may teach, write what it predicts for the training rows."""
    with run.large_tables():
        model = new_model(config, table, UniformConfig(embedding_dim=config.embedding.embedding_dim))
        trained = train_model(
            model, data, config.training, seed=config.seed, folder=folder, stage=stage, progress=progress
        )
        if labels is not None:
            share = config.largest_share
            Lesson.by(model, data.train, share, stage=f"{stage} predicts", progress=progress).save(labels)
    return trained


def search(
    run: Run, table: EncodedTable, data: SplitBatches, teaching: Teaching, progress: Progress | None = None
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
    teaching: Teaching,
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
                lesson=run.lesson(teaching.search),
                progress=progress,
            )
    except BudgetError as error:
        if run.config.max_auc_drop is None or error.budget is None or len(budgets) == 1:
            raise
        # a rung of the ladder below the method's smallest form: nobody asked for that size, so it is left out
        left = [budget for budget in budgets if budget != Budget.parse(str(error.budget))]
    return _find(run, table, data, left, teaching, progress)


def choose_teaching(run: Run, table: EncodedTable, data: SplitBatches, progress: Progress | None = None) -> Teaching:
    """How the teachers teach: as told, or as the smallest ticket comes to the highest validation AUC."""
    chosen = run.teaching()
    if chosen is None:
        untested = replace(data, test=None)

        def validation_auc(teaching: Teaching) -> float:
            tickets = search(run, table, data, teaching, progress)
            smallest = min(tickets, key=lambda ticket: ticket.num_parameters)
            return _retrained(run, table, untested, smallest, teaching, progress).fit.validation.auc

        trial = try_teachings(run.config.teachings(), validation_auc)
        chosen = trial.best
        told = {"share": chosen.retraining, "search_share": chosen.search, "validation_auc": trial.validation_aucs}
        write_json(run.teacher, told if trial.failed is None else {**told, "failed": trial.failed})
    return chosen


def retrain(
    run: Run,
    table: EncodedTable,
    data: SplitBatches,
    ticket: Ticket,
    teaching: Teaching,
    progress: Progress | None = None,
) -> FrontierPoint:
    """Ticket → retrained model → bundle, and its point on the frontier."""
    config, folder = run.config, run.retrained(ticket.budget)
    done = folder / "point.json"
    if not done.exists():
        trained = _retrained(run, table, data, ticket, teaching, progress)
        assert isinstance(trained.model, CtrModel)
        label = method_name(config.embedding)
        point = _point(trained, label=label, budget=str(ticket.budget), seed=config.seed)
        encoder = RowEncoder.load(run.encoded)
        save_bundle(run.bundle(ticket.budget), trained.model, config.model, encoder, facts=point.to_json())
        _finish(folder, point)
    return FrontierPoint.from_json(read_json(done))


def _retrained(
    run: Run,
    table: EncodedTable,
    data: SplitBatches,
    ticket: Ticket,
    teaching: Teaching,
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
            lesson=run.lesson(teaching.retraining),
            progress=progress,
        )


def new_model(
    config: RunConfig, table: EncodedTable, embedding: EmbeddingConfig, *, purpose: str = "initial"
) -> CtrModel:
    """A fresh model for a table; the same seed gives every method the same initial weights."""
    with isolated_rng():
        seed_all(derive_seed(config.seed, purpose))
        tables = build_embedding(table.schema.field_sizes, embedding, feature_counts=table.feature_counts.tolist())
        model = build_model(tables, config.model, num_dense=table.schema.num_dense)
    if isinstance(embedding, PepConfig) and embedding.first_order:
        attach_(model, replace(embedding, embedding_dim=1), where=_first_order, min_embedding_dim=1)
    return model


def _first_order(module: nn.Module, name: str) -> bool:
    return isinstance(module, nn.Embedding) and module.embedding_dim == 1


def _point(trained: Trained, *, label: str, budget: str | None, seed: int) -> FrontierPoint:
    return FrontierPoint.from_metrics(
        label=label,
        budget=budget,
        num_parameters=trained.num_parameters,
        storage_bytes=trained.storage_bytes,
        validation=trained.fit.validation,
        test=trained.test,
        seed=seed,
    )


def _finish(folder: Path, point: FrontierPoint) -> None:
    """A stage is done once its point is written; its checkpoints are of no more use."""
    write_json(folder / "point.json", point.to_json())
    for checkpoint in folder.rglob(CHECKPOINT):
        checkpoint.unlink()
