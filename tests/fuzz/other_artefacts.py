"""More artefacts for the campaigns: rare kinds of tables and tickets, and the files of a run or comparison."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from thresher._internal.settings import config_to_mapping
from thresher.baselines.hashing import QuotientRemainderConfig, QuotientRemainderEmbedding
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.method_table import MethodTable, load_any_table
from thresher.data.config import DataConfig, DenseConfig, FieldConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import build_source
from thresher.data.schema import SPLITS
from thresher.data.table import EncodedTable
from thresher.embeddings.feature_groups import FeatureRuns
from thresher.embeddings.pep import PepConfig
from thresher.experiment.comparison.choice import Choice
from thresher.experiment.comparison.compare_cell import FoundTickets
from thresher.experiment.comparison.compared_points import ComparedPoint, load_points
from thresher.experiment.dense_start import DenseStart
from thresher.experiment.floor import Floor
from thresher.models.model_registry import build_model, model_config
from thresher.search.budget import Budget
from thresher.search.ticket import Provenance, SizeTicket, TableSizes
from thresher.search.ticket_files import load_ticket, save_ticket
from thresher.serving.bundle import save_bundle
from thresher.serving.numpy_predictor import NumpyPredictor
from thresher.serving.predictor import Predictor
from thresher.training.distillation import SoftLabels

ROWS = [{"user": "1", "tags": "a|b", "price": "2.5"}, {"user": "77", "tags": "", "price": "9"}]


def make_wide_table(folder: Path) -> EncodedTable:
    """A table with a multi-valued field, dense inputs and quantiles."""
    generator = np.random.default_rng(1)
    tags = ["|".join(generator.choice(list("abcdef"), generator.integers(0, 4))) for _ in range(300)]
    rows = {
        "label": generator.integers(0, 2, 300),
        "user": generator.integers(0, 30, 300).astype(str),
        "tags": tags,
        "price": np.round(generator.exponential(9, 300), 2).astype(str),
    }
    pl.DataFrame(rows).write_csv(folder / "wide.csv")
    fields = (FieldConfig(name="user"), FieldConfig(name="tags", separator="|", pooling="mean"))
    dense = (DenseConfig(name="price"),)
    config = DataConfig(paths=(str(folder / "wide.csv"),), label="label", fields=fields, dense=dense)
    return encode(build_source(config), folder / "wide table")


def make_wide_bundles(folder: Path, table: EncodedTable) -> None:
    """AutoInt on a method table, and FM on int4 values."""
    sizes, encoder = table.schema.field_sizes, RowEncoder.load(table.folder)
    torch.manual_seed(1)
    shared = QuotientRemainderEmbedding(sizes, QuotientRemainderConfig(embedding_dim=8, num_buckets=5))
    MethodTable.from_embedding(shared).save(folder / "method.safetensors")
    for name, embedding, values in (("autoint", shared, "fp32"), ("fm", _compact(sizes), "int4")):
        model = build_model(embedding, model_config(name), num_dense=table.schema.num_dense).eval()
        save_bundle(folder / f"{name} bundle", model, model_config(name), encoder, value_type=values)  # type: ignore[arg-type]


def _compact(sizes: tuple[int, ...]) -> CompactEmbedding:
    mask = torch.rand(sum(sizes), 8) < 0.4
    return CompactEmbedding.from_mask(sizes, mask, torch.randn(mask.shape))


def make_size_ticket(folder: Path) -> None:
    runs = FeatureRuns.of(np.array([0] * 40 + [1] * 50 + [0] * 10), 2)
    state = {"table.weight": torch.randn(30), "bias": torch.randn(4)}
    origin = Provenance("autodim", 0, 3, 1, {"plan": [1, 2]})
    save_ticket(
        SizeTicket(Budget.parse("2%"), {"table": TableSizes(8, (2, 8), runs)}, state, state, 500, origin), folder
    )


def make_run_files(folder: Path) -> None:
    """The files beside tables, tickets and bundles that a resumed run or comparison reads."""
    generator = np.random.default_rng(2)
    Floor(generator.normal(size=90).astype(np.float32)).save(folder / "validation.npy")
    SoftLabels(generator.random(90, np.float32), 0.5).save(folder / "soft_labels.npy")
    state = {"embedding.weight": torch.randn(9, 4), "bias": torch.randn(1)}
    DenseStart(state, 2.0).save(folder / "dense.safetensors")
    trials = [{"config": config_to_mapping(PepConfig(embedding_dim=4)), "validation_auc": 0.7, "num_parameters": 40}]
    Choice(list(trials), exhausted=True).save(folder / "choice-40.json")
    FoundTickets({Budget.parse("40"): "tickets/40"}, {Budget.parse("1"): "too small"}).save(folder / "tickets.json")
    point = ComparedPoint(
        source="synthetic", model="fm", method="pep", config=trials[0]["config"], seed=0, budget="40",
        num_parameters=40, storage_bytes=300, validation_auc=0.7, validation_logloss=0.5, test_auc=0.7,
        test_logloss=0.5, seconds=1.0, search_seconds=0.5, search_epochs=2, retrain_seconds=0.5, retrain_epochs=2.0,
        teacher_share=0.0, trials=list(trials), versions={"torch": "2"}, machine={"cores": 2},
    )  # fmt: skip
    point.save(folder / "points" / "40-seed0.json")


def read_wide_table(folder: Path) -> Iterator[Any]:
    table = EncodedTable.open(folder)
    yield from (table.schema, table.feature_counts)
    for split in map(table.split, SPLITS):
        yield from (split.ids, split.labels, split.dense, split.bags[0].values, split.bags[0].offsets)
    rows = RowEncoder.load(folder).encode_frame(pl.DataFrame(ROWS))
    yield from (rows.ids, rows.dense, rows.bags[0].values)


def read_wide_bundle(folder: Path) -> Iterator[Any]:
    predictor = Predictor.load(folder)
    yield from (predictor.predict(ROWS), predictor.predict(ROWS[0]), predictor.schema)


def read_wide_numpy(folder: Path) -> Iterator[Any]:
    predictor = NumpyPredictor.load(folder)
    yield from (predictor.predict(ROWS), predictor.predict(ROWS[0]), predictor.schema)


def read_method_table(path: Path) -> Iterator[Any]:
    table = load_any_table(path)
    assert isinstance(table, MethodTable)
    yield from (table.shape, table.lookup(torch.arange(table.shape[0])).numpy())


def read_size_ticket(folder: Path) -> Iterator[Any]:
    ticket = load_ticket(folder)
    assert isinstance(ticket, SizeTicket)
    yield from (ticket.budget, ticket.provenance, ticket.num_parameters)
    yield from (part for name, sizes in sorted(ticket.sizes().items()) for part in (name, sizes.numpy()))
    for state in (ticket.initial, ticket.final):
        yield from (part for name in sorted(state) for part in (name, state[name].numpy()))


def read_run_files(folder: Path) -> Iterator[Any]:
    yield Floor.load(folder / "validation.npy").predictions
    yield SoftLabels.load(folder / "soft_labels.npy", 0.5).labels
    start = DenseStart.load(folder / "dense.safetensors")
    yield from (start.num_epochs, *(part for name in sorted(start.state) for part in (name, start.state[name].numpy())))
    choice = Choice.load(folder / "choice-40.json")
    yield from (choice.trials, choice.exhausted, choice.best())
    found = FoundTickets.load(folder / "tickets.json")
    yield from (found.folders, found.unmet, load_points(folder / "points"))
