"""A pruned DeepFM with random weights and its vocabularies, as a bundle and as the dense service of today.

The kept entries are random, so that sizes and speed are those of a trained model, but its predictions mean nothing.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from thresher import CompactEmbedding, DeepFmConfig, RowEncoder, build_model
from thresher.data.encode.row_encoder import Vocabulary
from thresher.data.schema import Field, Label, Schema
from thresher.serving.bundle import save_bundle

CRITEO_FEATURES, NUM_FIELDS, WIDTH = 1_086_810, 39, 64


@dataclass(frozen=True)
class ServedModel:
    bundle: Path
    dense: Path
    vocabularies: list[list[str]]

    def rows(self, count: int, seed: int = 0) -> list[dict[str, Any]]:
        """Rows whose values are frequent as in logs (by a power law); 5 % are unknown."""
        draw = np.random.default_rng(seed)
        columns = []
        for values in self.vocabularies:
            at = (len(values) * draw.random(count) ** 4).astype(int)
            columns.append(
                ["new" if new else values[place] for new, place in zip(draw.random(count) < 0.05, at, strict=True)]
            )
        names = column_names()
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=False)]


def column_names() -> list[str]:
    return [f"I{at}" for at in range(1, 14)] + [f"C{at}" for at in range(1, 27)]


def make_model(
    folder: Path, *, num_features: int = CRITEO_FEATURES, density: float = 0.01, seed: int = 0
) -> ServedModel:
    """Write `folder/bundle` and `folder/dense`, which compute the same function."""
    sizes = field_sizes(num_features)
    draw = np.random.default_rng(0)
    vocabularies = [[f"{key:08x}" for key in draw.choice(2**32, size - 1, replace=False)] for size in sizes]
    fields = tuple(Field(name=name, size=size) for name, size in zip(column_names(), sizes, strict=True))
    schema = Schema(fields=fields, label=Label(column="label"))
    counts = [np.arange(size - 1, 0, -1) for size in sizes]
    encoder = RowEncoder(
        schema, [Vocabulary(pl.Series("value", v), c) for v, c in zip(vocabularies, counts, strict=True)]
    )
    torch.manual_seed(seed)
    mask = torch.rand(schema.num_features, WIDTH) < density
    weight = torch.randn(mask.shape) * 0.1
    config = DeepFmConfig()
    model = build_model(CompactEmbedding.from_mask(sizes, mask, weight), config).eval()
    save_bundle(folder / "bundle", model, config, encoder)
    write_dense(folder / "dense", model, weight * mask, vocabularies, schema, config)
    return ServedModel(folder / "bundle", folder / "dense", vocabularies)


def field_sizes(num_features: int) -> list[int]:
    """13 fields of buckets, and 26 fields that halve in size as those of Criteo's log do, roughly."""
    shares = np.array([2.0 ** -(at / 1.5) for at in range(26)])
    rest = num_features - 13 * 45
    sizes = np.maximum((rest * shares / shares.sum()).astype(int), 4)
    return [45] * 13 + sizes.tolist()


def write_dense(
    folder: Path, model: torch.nn.Module, weight: torch.Tensor, vocabularies: list[list[str]], schema: Any, config: Any
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: value for name, value in model.state_dict().items() if not name.startswith("embedding.")}
    linear = [value for name, value in state.items() if name.startswith("linear_term.weights.")]
    deep = {name: value for name, value in state.items() if name.startswith("deep_term.layers.")}
    places = {old: new for new, old in enumerate(sorted({int(name.split(".")[2]) for name in deep}))}
    # Thresher's layers are linear, batch norm, ReLU, dropout; the service leaves dropout out
    shift = {old: new + new // 2 for old, new in places.items()}
    renamed = {f"deep.{shift[int(name.split('.')[2])]}.{name.split('.')[3]}": value for name, value in deep.items()}
    torch.save(
        {"embedding.weight": weight, "first_order.weight": linear[0], "bias": state["linear_term.bias"], **renamed},
        folder / "model.pt",
    )
    known = [{value: at for at, value in enumerate(values, 1)} for values in vocabularies]
    shape = (schema.num_features, schema.num_fields, WIDTH, list(config.hidden_sizes))
    content = {"columns": column_names(), "vocabularies": known, "offsets": list(schema.field_offsets), "shape": shape}
    (folder / "vocabularies.json").write_text(json.dumps(content))
