"""Bundles over every kind of raw column, and raw rows for them."""

import numpy as np
import polars as pl
import torch

from thresher.compact.embedding import CompactEmbedding
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
from thresher.data.schema import DenseColumn, Field, Label, Schema
from thresher.models.model_registry import build_model, model_config
from thresher.serving.bundle import save_bundle
from thresher.serving.predictor import load_bundle

VALUES = {
    "city": ["Köln", "Ulm", "", "a|b"],
    "log": [str(number) for number in range(-3, 60)] + [""],
    "parts": ["0", "1", "2", "3", ""],
    "hour": [str(number) for number in range(20)],
    "weekday": ["1", "2", "3", "5", "7"],
    "year": ["2013", "2014", "2015"],
    "tags": ["a", "b", "c d"],
    "flags": ["x", "y"],
}
SETTINGS = {
    "log": {"transform": "log2", "shift": 1.5},
    "parts": {"transform": "quantiles", "edges": (0.5, 2.0, 40.0), "column": "log"},
    "hour": {"transform": "date", "date_part": "hour", "date_format": "%y%m%d%H", "column": "when"},
    "weekday": {"transform": "date", "date_part": "weekday", "date_format": "%y%m%d%H", "column": "when"},
    "year": {"transform": "date", "date_part": "year", "date_format": "unix", "column": "seconds"},
    "tags": {"pooling": "mean", "separator": "|"},
    "flags": {"pooling": "sum", "separator": ","},
}


def make_predictor(folder, names, num_dense, kind="deepfm"):
    fields = tuple(Field(name=name, size=len(VALUES[name]) + 1, **SETTINGS.get(name, {})) for name in names)
    dense = (DenseColumn(name="x", mean=0.3, scale=1.7), DenseColumn(name="y", scaling="log", mean=1.0))[:num_dense]
    schema = Schema(fields=fields, label=Label(column="clicked"), dense=dense)
    vocabularies = [
        Vocabulary(pl.Series("value", VALUES[name]), np.ones(len(VALUES[name]), np.int64)) for name in names
    ]
    torch.manual_seed(0)
    mask = torch.rand(schema.num_features, 8) < 0.4
    embedding = CompactEmbedding.from_mask(schema.field_sizes, mask, torch.randn(mask.shape))
    model, config = build_model(embedding, model_config(kind), num_dense=num_dense).eval(), model_config(kind)
    with torch.no_grad():
        for parameter in model.other_parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return load_bundle(save_bundle(folder, model, config, RowEncoder(schema, vocabularies)))


def raw_rows(num_rows=300):
    random = np.random.default_rng(0)
    numbers = np.where(random.random(num_rows) < 0.2, np.nan, np.exp(random.uniform(-2, 12, num_rows)).round(1))
    return pl.DataFrame(
        {
            "city": random.choice(["Köln", "Ulm", "", "a|b", "Bonn"], num_rows).tolist(),
            "log": numbers,
            "when": random.choice([14102100, 14103023, 13013112, 15022909, 14122419, 99999999], num_rows),
            "seconds": random.uniform(1.35e9, 1.45e9, num_rows).round(),
            "tags": random.choice(["a", "b|a|z", "", "c d|a|b|b", "z"], num_rows).tolist(),
            "flags": random.choice(["x,y", "", "x", "x,x,,q"], num_rows).tolist(),
            "x": np.where(random.random(num_rows) < 0.1, np.nan, random.standard_normal(num_rows)),
            "y": random.standard_normal(num_rows) * 100,
        }
    )
