"""Recorded searches, shared by the parts on thresholds, tickets and features. Each search is run once and stored.

A search runs epoch by epoch with `Searcher` to record metrics, densities by frequency and the components of thresholds.
It finds the same tickets as the library (a test compares them). The test split is read when a ticket is cut, for the
pruned model without retraining; nothing is chosen by it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from torch.optim import Optimizer

from environment import run_environment
from paper.experiments import digest
from paper.measures import AdamParts, frequency_groups, group_densities, threshold_parts
from paper.settings import PaperSettings
from thresher._internal.storage.files import read_json, write_json
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.data.table import EncodedTable
from thresher.embeddings.pep import PepConfig, PepEmbedding, Pressure
from thresher.embeddings.thresholds import GranularityName
from thresher.experiment.config import RunConfig
from thresher.experiment.run.run_models import new_model
from thresher.models.base import CtrModel
from thresher.search.budget import Budget
from thresher.search.schedule import Schedule, SearchConfig
from thresher.search.searcher import Searcher
from thresher.search.ticket import MaskTicket
from thresher.search.ticket_files import load_mask_ticket, save_ticket
from thresher.training.checkpoint import derive_seed
from thresher.training.epoch import evaluate, train_epoch
from thresher.training.fit import TrainingConfig
from thresher.training.metrics import Metrics
from thresher.training.optimizers import OptimizerConfig, build_optimizer
from thresher.training.row_adam import RowAdam

SOURCES = ("movielens-1m", "criteo")
BUDGETS = {"movielens-1m": ("50k", "25k", "12k", "6500"), "criteo": ("50k", "10k", "2k")}
DECAY_BUDGETS = {"movielens-1m": ("100k", "50k", "30k"), "criteo": ("100k", "50k", "10k")}
DECAY_EPOCHS = 40
RAISED = 23.0  # learning rate × number of steps of the search on MovieLens-1M, at 1e-3


@dataclass(frozen=True, kw_only=True)
class RecordedConfig:
    """Settings of recorded searches and of the trainings after them."""

    searches: tuple[RunConfig, ...]
    trainings: tuple[TrainingConfig, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Search:
    """A finished search: tickets, records of each epoch, and metrics of the pruned model at each cut."""

    folder: Path
    config: RunConfig
    table: EncodedTable
    data: SplitBatches
    tickets: Mapping[str, MaskTicket]
    records: Sequence[Mapping[str, Any]]
    cuts: Mapping[str, Mapping[str, Any]]


def search(
    settings: PaperSettings,
    source: str,
    *,
    seed: int,
    pressure: Pressure = "plan",
    granularity: GranularityName = "feature-dimension",
) -> Search:
    """Run one search for all budgets, or load it if it is finished."""
    table = encoded(settings, source)
    config = replace(search_config(settings, source, pressure=pressure, granularity=granularity), seed=seed)
    data = SplitBatches.of(table, config.training.batch_size, seed=derive_seed(seed, "batches"))
    folder = settings.temporary / "searches" / source / f"{pressure}-{granularity}-{digest(config)}" / str(seed)
    done = folder / "search.json"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_json(done, record_search(config, table, data, folder))
    found = read_json(done)
    tickets = {text: load_mask_ticket(folder / slug) for text, slug in found["tickets"].items()}
    return Search(folder=folder, config=config, table=table, data=data, tickets=tickets,
                  records=found["records"], cuts=found["cuts"])  # fmt: skip


def record_search(config: RunConfig, table: EncodedTable, data: SplitBatches, folder: Path) -> dict[str, Any]:
    """Run a search, save its tickets in `folder` and return the records as plain data."""
    model = new_model(config, table, config.embedding)
    pep, optimizer = model.embedding, build_optimizer(model, config.search.optimizer)
    assert isinstance(pep, PepEmbedding)
    parts = AdamParts(optimizer, pep.raw_threshold) if pep.config.pressure == "decay" else None
    groups = frequency_groups(table.feature_counts)
    stopping = config.search.warmup_stopping()
    found: dict[str, Any] = {"tickets": {}, "cuts": {}, "records": [], "made_with": run_environment()}

    def on_ticket(ticket: MaskTicket) -> None:
        assert data.test is not None
        save_ticket(ticket, folder / ticket.budget.slug)
        found["tickets"][str(ticket.budget)] = ticket.budget.slug
        found["cuts"][str(ticket.budget)] = {
            "step": ticket.provenance.step,
            "num_kept": pep.num_parameters(),
            "validation": short(evaluate(model, data.validation)),
            "test": short(evaluate(model, data.test)),
        }

    searcher, num_epochs = _searcher(model, config, len(data.train), on_ticket, optimizer)
    for epoch in range(1, num_epochs + 1):
        loss = train_epoch(model, data.train, optimizer, epoch, on_step=lambda *_: searcher.step())
        validation = evaluate(model, data.validation)
        searcher.epoch = epoch
        if searcher.warming_up and config.search.warmup_epochs is None:
            stopping.update(epoch, validation)
            if stopping.should_stop:
                searcher.end_warmup()
        sizes = (pep.pruned_weight() != 0).sum(dim=1).numpy()
        record = {
            "epoch": epoch,
            "train_loss": loss,
            "validation": short(validation),
            "num_kept": pep.num_parameters(),
            "groups": group_densities(sizes, groups, pep.embedding_dim),
        }
        if pep.config.granularity == "feature-dimension":
            record["thresholds"] = threshold_parts(pep, parts)
        found["records"].append(record)
        if searcher.planned and searcher.finished:
            break
    return found


def _searcher(
    model: CtrModel,
    config: RunConfig,
    steps_per_epoch: int,
    on_ticket: Callable[[MaskTicket], None],
    optimizer: Optimizer,
) -> tuple[Searcher, int]:
    """Return the searcher as the library configures it, and the maximum number of epochs."""
    schedule = Schedule.of(config.search, steps_per_epoch)
    searcher = Searcher(
        model,
        config.budgets,
        steps=schedule.num_steps,
        warmup_steps=schedule.warmup_steps,
        every=schedule.every,
        seed=config.seed,
        on_ticket=on_ticket,
        before_cut=optimizer.catch_up if isinstance(optimizer, RowAdam) else None,
    )
    if searcher.planned:
        return searcher, schedule.num_epochs(steps_per_epoch)
    searcher.end_warmup()
    return searcher, config.search.max_epochs


def short(metrics: Metrics) -> dict[str, float]:
    return {"auc": round(metrics.auc, 6), "logloss": round(metrics.logloss, 6)}


@cache
def encoded(settings: PaperSettings, source: str) -> EncodedTable:
    """Return the encoded table of a data set."""
    return encode(build_source(settings.data(source)), settings.temporary / "searches" / source / "encoded")


def search_config(
    settings: PaperSettings,
    source: str,
    *,
    pressure: Pressure = "plan",
    granularity: GranularityName = "feature-dimension",
) -> RunConfig:
    """Return the settings of a search, the same for all seeds."""
    table = encoded(settings, source)
    training = TrainingConfig(batch_size=512) if settings.quick else TrainingConfig()
    embedding = PepConfig(pressure=pressure, granularity=granularity)
    search = SearchConfig(warmup_epochs=2, plan_epochs=4) if settings.quick else SearchConfig()
    budgets = BUDGETS if pressure == "plan" else DECAY_BUDGETS
    if pressure == "decay":
        epochs = 8 if settings.quick else DECAY_EPOCHS
        published = source == "movielens-1m" and not settings.quick
        # with fewer steps than in the paper, thresholds need a higher learning rate
        num_steps = len(SplitBatches.of(table, training.batch_size, seed=0).train)
        rate = OptimizerConfig().threshold_learning_rate if published else RAISED / (epochs * num_steps)
        optimizer = OptimizerConfig(threshold_decay=1e-5, threshold_learning_rate=rate)
        search = replace(search, max_epochs=epochs, optimizer=optimizer)
    num_entries = table.schema.num_features * embedding.embedding_dim
    possible = [text for text in budgets[source] if Budget.parse(text).max_entries(num_entries) < num_entries]
    data = settings.portable_data(source)
    return RunConfig(
        effort="paper", data=data, embedding=embedding, search=search, training=training, budgets=tuple(possible)
    )
