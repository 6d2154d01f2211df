"""Artefacts of every kind, and mutations of their files: the corpus of the campaigns and of the property test."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from fuzz import other_artefacts as others
from fuzz.structure import change_structure, change_toml
from thresher._internal.settings import load_toml, save_toml
from thresher.compact.embedding import CompactEmbedding
from thresher.compact.method_table import load_any_table
from thresher.compact.table import CompactTable
from thresher.data.config import DataConfig, FieldConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import build_source
from thresher.data.schema import SPLITS
from thresher.data.table import EncodedTable
from thresher.experiment.config import RunConfig
from thresher.models.model_registry import build_model, model_config
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.search.budget import Budget
from thresher.search.ticket import MaskTicket, Provenance, Weights
from thresher.search.ticket_files import load_ticket, save_ticket
from thresher.serving.bundle import save_bundle
from thresher.serving.numpy_predictor import NumpyPredictor
from thresher.serving.predictor import Predictor
from thresher.training.checkpoint import Checkpoint

IDS = np.array([[0, 40], [3, 45], [7, 60]], np.int32)


@dataclass(frozen=True)
class Artefact:
    """A stored thing, and the digest of everything that loading it gives."""

    name: str
    path: Path
    read: Callable[[Path], str]
    sealed: bool = True  # a manifest or a checksum covers it; people write the others

    def files(self) -> list[Path]:
        return sorted(self.path.rglob("*")) if self.path.is_dir() else [self.path]


def make_corpus(folder: Path) -> list[Artefact]:
    """Small artefacts of every kind in a folder."""
    generator = np.random.default_rng(0)
    rows = pl.DataFrame(
        {
            "label": generator.integers(0, 2, 400),
            "user": generator.integers(0, 30, 400).astype(str),
            "item": generator.integers(0, 40, 400).astype(str),
        }
    )
    rows.write_csv(folder / "rows.csv")
    fields = (FieldConfig(name="user"), FieldConfig(name="item"))
    config = DataConfig(paths=(str(folder / "rows.csv"),), label="label", fields=fields)
    table = encode(build_source(config), folder / "table")
    sizes, N = table.schema.field_sizes, table.schema.num_features
    torch.manual_seed(0)
    mask = torch.rand(N, 8) < 0.3
    embedding = CompactEmbedding.from_mask(sizes, mask, torch.randn(mask.shape))
    model = build_model(embedding, model_config("deepfm")).eval()
    save_bundle(folder / "bundle", model, model_config("deepfm"), RowEncoder.load(table.folder))
    weights = Weights({"embedding": torch.randn(int(mask.sum()))}, {"bias": torch.randn(4)})
    provenance = Provenance(method="pep", seed=0, step=1, epoch=1)
    ticket = MaskTicket(
        budget=Budget.parse(str(int(mask.sum()))), masks={"embedding": mask}, initial=weights, final=weights,
        provenance=provenance,
    )  # fmt: skip
    save_ticket(ticket, folder / "ticket")
    Checkpoint({"a": torch.randn(50), "b": torch.arange(9)}, {"epoch": 3, "loss": 0.5}).save(folder / "c.safetensors")
    point = FrontierPoint(
        label="pep", budget="100", num_parameters=100, storage_bytes=900, validation_auc=0.8, validation_logloss=0.4,
        test_auc=0.79, test_logloss=0.41, seed=0,
    )  # fmt: skip
    Frontier(points=(point,), dense=point, metadata={"seconds": 1.5}).save(folder / "results.json")
    compact = Path(shutil.copy(folder / "bundle" / "tables" / "embedding.safetensors", folder / "compact.safetensors"))
    save_toml(RunConfig(data=config, budgets=("10%", "50k")), folder / "config.toml")
    return [
        Artefact("encoded table", folder / "table", _read_table),
        Artefact("bundle", folder / "bundle", _read_bundle),
        Artefact("bundle, numpy", folder / "bundle", _read_numpy),
        Artefact("ticket", folder / "ticket", _read_ticket),
        Artefact("checkpoint", folder / "c.safetensors", _read_checkpoint),
        Artefact("results", folder / "results.json", _read_results),
        Artefact("compact table", compact, _read_compact),
        Artefact("settings", folder / "config.toml", _read_settings, sealed=False),
        *_make_others(folder),
    ]


def _make_others(folder: Path) -> Iterator[Artefact]:
    table = others.make_wide_table(folder)
    others.make_wide_bundles(folder, table)
    others.make_size_ticket(folder / "size ticket")
    others.make_run_files(folder / "run")
    kinds: dict[str, tuple[str, Callable[[Path], Iterable[Any]]]] = {
        "encoded table, dense and bags": (table.folder.name, others.read_wide_table),
        "bundle of a method table": ("autoint bundle", others.read_wide_bundle),
        "bundle of int4, numpy": ("fm bundle", others.read_wide_numpy),
        "method table": ("method.safetensors", others.read_method_table),
        "size ticket": ("size ticket", others.read_size_ticket),
        "files of a run": ("run", others.read_run_files),
    }
    for name, (place, read) in kinds.items():
        yield Artefact(name, folder / place, partial(_digest_of, read))


def mutate(content: bytes, chance: random.Random, donors: list[bytes]) -> bytes:
    """One random change: bits, bytes, blocks, lengths, numbers in text, or another file's content."""
    data, at = bytearray(content), chance.randrange(max(len(content), 1))
    if chance.random() < 0.4 and (changed := change_structure(content, chance)) is not None:
        return changed
    if content.startswith(b"budgets") and chance.random() < 0.6:
        return change_toml(content, chance)
    match chance.randrange(8):
        case 0 if data:
            data[at] ^= 1 << chance.randrange(8)
        case 1 if data:
            data[at] = chance.randrange(256)
        case 2:
            del data[at:]
        case 3:
            del data[at : at + chance.randrange(1, 64)]
        case 4:
            length = chance.randrange(1, 4096)
            data[at : at + length] = bytes(len(data[at : at + length]))  # zeros, as after a power failure
        case 5:
            data[at:at] = chance.randbytes(chance.randrange(1, 64))
        case 6:
            digits = [place for place, byte in enumerate(data[:4096]) if 48 <= byte <= 57]
            if digits:
                place = chance.choice(digits)
                data[place : place + 1] = chance.choice([b"9", b"-1", b"1e999", b"9" * 30, b"null", b"[]"])
        case _:
            return chance.choice(donors)
    return bytes(data)


def _digest(parts: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode())
    return digest.hexdigest()


def _digest_of(read: Callable[[Path], Iterable[Any]], path: Path) -> str:
    return _digest(read(path))


def _read_table(folder: Path) -> str:
    table = EncodedTable.open(folder)
    splits = [table.split(name) for name in SPLITS]
    encoder = RowEncoder.load(folder)
    rows = encoder.encode_frame(pl.DataFrame({"user": ["1", "2"], "item": ["3", "x"]}))
    arrays = [array for split in splits for array in (split.ids, split.labels)]
    return _digest([table.schema, table.feature_counts, json.dumps(table.metadata, sort_keys=True), *arrays, rows.ids])


def _read_bundle(folder: Path) -> str:
    predictor = Predictor.load(folder)
    return _digest([predictor.predict_ids(IDS), predictor.schema, predictor.predict({"user": "1", "item": "2"})])


def _read_numpy(folder: Path) -> str:
    predictor = NumpyPredictor.load(folder)
    return _digest([predictor.predict_ids(IDS), predictor.predict({"user": "1", "item": "2"})])


def _read_ticket(folder: Path) -> str:
    ticket = load_ticket(folder)
    assert isinstance(ticket, MaskTicket)
    states = [ticket.initial, ticket.final]
    tensors = [value.numpy() for state in states for part in (state.values, state.state) for value in part.values()]
    return _digest([ticket.budget, ticket.provenance, *(mask.numpy() for mask in ticket.masks.values()), *tensors])


def _read_checkpoint(path: Path) -> str:
    found = Checkpoint.load(path)
    names = sorted(found.tensors)
    return _digest([found.metadata, *names, *(found.tensors[name].numpy() for name in names)])


def _read_compact(path: Path) -> str:
    table = load_any_table(path)
    assert isinstance(table, CompactTable)
    return _digest([table.shape, table.lookup(np.arange(min(table.shape[0], 100)))])


def _read_settings(path: Path) -> str:
    return _digest([repr(load_toml(RunConfig, path))])


def _read_results(path: Path) -> str:
    return _digest([repr(Frontier.load(path))])
