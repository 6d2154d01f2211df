"""Every kind of data is encoded, searched, retrained, and predicted from raw rows."""

import random
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from thresher.data.batches.batches import Batches
from thresher.data.config import DataConfig, DenseConfig, FieldConfig
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.encode.sources import build_source
from thresher.data.encode.split_rows import RandomSplit
from thresher.data.table import EncodedTable
from thresher.embeddings.pep import PepConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import PruneResult, prune
from thresher.search.schedule import SearchConfig
from thresher.serving.predictor import load_bundle
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig


def prune_quickly(data: DataConfig, out: Path) -> PruneResult:
    fast = OptimizerConfig(learning_rate=1e-2)
    config = RunConfig(
        data=data,
        embedding=PepConfig(embedding_dim=4),
        search=SearchConfig(warmup_epochs=1, plan_epochs=2, clock_steps=5, optimizer=fast),
        training=TrainingConfig(max_epochs=6, batch_size=64, patience=2, optimizer=fast),
        budgets=("20%",),
    )
    return prune(config, out=out)


def check_predictions(result: PruneResult, raw: pl.DataFrame) -> None:
    """The bundle's probabilities of raw test rows equal the model's of the stored rows."""
    bundle = load_bundle(next(path.parent for path in result.run.folder.rglob("bundles/*/schema.json")))
    table = EncodedTable.open(result.run.encoded)
    test = RandomSplit(0).assign(table.num_rows) == 2
    from_raw = bundle.predict(raw.filter(pl.Series(test)))
    with torch.no_grad():
        parts = [bundle.model(*batch.inputs).sigmoid() for batch in Batches(table.split("test"), 1000).epoch(0)]
    assert np.allclose(from_raw, torch.cat(parts).numpy(), atol=1e-6)
    assert len(np.unique(from_raw)) > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "file"), [("criteo", "criteo/train.txt"), ("avazu", "avazu/train.csv"), ("movielens-1m", "ml-1m")]
)
def test_real_rows(tmp_path: Path, data_dir: Path, source: str, file: str) -> None:
    folder = tmp_path / "raw"
    folder.mkdir()
    if not (data_dir / file).exists():
        pytest.skip(f"needs {data_dir / file}")
    if source == "movielens-1m":
        for name in ("users.dat", "movies.dat"):
            (folder / name).write_bytes((data_dir / file / name).read_bytes())
        file += "/ratings.dat"
    with (data_dir / file).open("rb") as lines:
        (folder / Path(file).name).write_bytes(b"".join(islice(lines, 6_000)))
    result = prune_quickly(DataConfig(source=source, data_dir=str(folder)), tmp_path / "run")
    raw = pl.concat(chunk.frame for chunk in build_source(result.run.config.data).chunks())
    check_predictions(result, raw)


def test_bags_dense_columns_and_weights(tmp_path: Path) -> None:
    rng = random.Random(0)
    rows = []
    for _ in range(3_000):
        tags, price, site = rng.choices("uvwxyz", k=rng.randrange(4)), rng.random(), rng.choice("abcdef")
        click = int(rng.random() < (0.9 if "u" in tags else 0.1 + 0.4 * (site == "a") + 0.2 * price))
        rows.append((click, site, "|".join(tags), f"{price:.3f}", rng.choice("12")))
    raw = pl.DataFrame(rows, schema=["click", "site", "tags", "price", "weight"], orient="row")
    raw.write_csv(tmp_path / "rows.csv")
    data = DataConfig(
        paths=(str(tmp_path / "rows.csv"),),
        label="click",
        fields=(
            FieldConfig(name="site"),
            FieldConfig(name="tags", separator="|", pooling="mean"),
            FieldConfig(name="price_bucket", column="price", transform="quantiles", num_buckets=8),
        ),
        dense=(DenseConfig(name="price"),),
        weight="weight",
    )
    result = prune_quickly(data, tmp_path / "run")
    assert result.frontier.points[0].test_auc > 0.6
    check_predictions(result, raw)
    encoder = RowEncoder.load(result.run.encoded)
    assert encoder.schema.field_names == ("site", "price_bucket", "tags")
    row = {"site": "never seen", "tags": "u|new", "price": None}
    bundle = load_bundle(next(path.parent for path in result.run.folder.rglob("bundles/*/schema.json")))
    assert 0 < bundle.predict(row) < 1


def test_every_field_multi_valued(tmp_path: Path) -> None:
    rng = random.Random(0)
    rows = []
    for _ in range(2_000):
        tags, words = rng.choices("uvwxyz", k=rng.randrange(4)), rng.choices("abcdef", k=rng.randrange(3))
        rows.append(
            (int(rng.random() < (0.8 if ("u" in tags) == ("a" in words) else 0.2)), "|".join(tags), "|".join(words))
        )
    raw = pl.DataFrame(rows, schema=["click", "tags", "words"], orient="row")
    raw.write_csv(tmp_path / "rows.csv")
    fields = tuple(FieldConfig(name=name, separator="|", pooling="sum") for name in ("tags", "words"))
    result = prune_quickly(DataConfig(paths=(str(tmp_path / "rows.csv"),), fields=fields), tmp_path / "run")
    assert result.frontier.dense.validation_rare_auc is None  # it goes by single-valued fields
    check_predictions(result, raw)
