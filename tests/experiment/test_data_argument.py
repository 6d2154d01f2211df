"""prune and compare take data frames and paths as well as settings; a run of a data frame can be resumed."""

import random
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import thresher
from thresher.cli.app import app
from thresher.data.config import DataConfig, FieldConfig
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError, DataError, FolderError, FormatError, RunExistsError, SettingsConflictError
from thresher.experiment.comparison.compare_config import CompareConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.run.run_folder import Run
from thresher.models.fm import DeepFmConfig
from thresher.search.schedule import SearchConfig
from thresher.serving.predictor import load_bundle
from thresher.training.fit import TrainingConfig

CONFIG = RunConfig(
    embedding=PepConfig(embedding_dim=4),
    search=SearchConfig(warmup_epochs=1, plan_epochs=2),
    training=TrainingConfig(max_epochs=2, batch_size=256),
    teacher_share=0.0,
)


def rows(num_rows: int = 1200) -> pd.DataFrame:
    draw = random.Random(0)
    users, items = [draw.randrange(50) for _ in range(num_rows)], [draw.randrange(60) for _ in range(num_rows)]
    shares = [0.8 if user % 2 == item % 2 else 0.2 for user, item in zip(users, items, strict=True)]
    return pd.DataFrame(
        {
            "clicked": [draw.random() < share for share in shares],
            "user": pd.Series(users, dtype="Int64"),
            "item": pd.Series([f"i{item}" for item in items], dtype="category"),
            "price": [draw.expovariate(0.05) for _ in range(num_rows)],
            "seen": [datetime(2024, 3, 1 + at % 28, at % 24) for at in range(num_rows)],
        }
    )


def prune(data, **settings):
    return thresher.prune(data, **{"label": "clicked", "budgets": ["20%"], "config": CONFIG, **settings})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return prune(rows(), out=tmp_path_factory.mktemp("frames") / "run")


def test_the_folder_of_a_run_is_no_bundle(finished) -> None:
    bundle = re.escape(str(finished.run.bundle("20%")))
    with pytest.raises(FormatError, match=f"is a run. Use one of its bundles: {bundle}$"):
        load_bundle(finished.run.folder)
    with pytest.raises(FormatError, match=f"no such bundle. Found beside it: {bundle}$"):
        load_bundle(finished.run.bundle("10%"))


def test_columns_without_names_are_numbered(tmp_path) -> None:
    frame = rows(400)
    frame = frame.set_axis(range(frame.shape[1]), axis=1)
    result = prune(frame, label=0, out=tmp_path / "run")
    assert result.run.config.data.label == "0"
    with pytest.raises(DataError, match="no column '9'"):
        prune(frame, label=9, out=tmp_path / "other")


def test_a_pandas_frame_is_pruned_and_predicted(finished) -> None:
    frame, result = rows(), finished
    assert [str(point.budget) for point in result.frontier.points] == ["20%"]
    table = result.run.encoded
    transforms = {field.name: field.transform for field in load_bundle(result.run.bundle("20%")).schema.fields}
    assert transforms == {"user": "none", "item": "none", "price": "quantiles", "seen": "date"}
    stored = pl.read_parquet(result.run.folder / "data.parquet")
    assert stored["user"].to_list() == frame["user"].to_list()
    assert table.exists()
    predictor = load_bundle(result.run.bundle("20%"))
    probabilities = predictor.predict(frame)
    assert np.array_equal(probabilities, predictor.predict_frame(frame))
    assert np.array_equal(probabilities, predictor.predict(stored))


@pytest.mark.parametrize("kind", ["polars", "path", "indexed"])
def test_every_form_of_the_same_rows_gives_the_same_result(finished, tmp_path: Path, kind: str) -> None:
    stored = pl.read_parquet(finished.run.folder / "data.parquet")
    if kind == "polars":
        result = prune(stored, out=tmp_path / "run")
    elif kind == "path":
        stored.write_parquet(tmp_path / "rows.parquet")
        result = prune(str(tmp_path / "rows.parquet"), out=tmp_path / "run")
        assert not (tmp_path / "run" / "data.parquet").exists()
    else:
        result = prune(rows().set_index(["seen", "price"])[["clicked", "user", "item"]], out=tmp_path / "run")
    expected = {point.budget: point.num_parameters for point in finished.frontier.points}
    assert {point.budget: point.num_parameters for point in result.frontier.points} == expected
    if kind != "indexed":  # the fields have another order
        assert result.frontier.points == finished.frontier.points


def test_a_run_of_a_frame_is_resumed_with_the_same_rows(finished, tmp_path: Path, monkeypatch) -> None:
    class Stop(Exception):
        pass

    class Stopping(thresher.training.progress.SilentProgress):
        def update(self, state):
            if state.stage == "search":
                raise Stop

    out = tmp_path / "run"
    with pytest.raises(Stop):
        prune(rows(), out=out, progress=Stopping())
    with pytest.raises(RunExistsError):
        prune(rows(), out=out)
    changed = rows()
    changed.loc[3, "price"] = 7.5
    with pytest.raises(FolderError, match=r"is not the one that the run in .* was started with"):
        prune(changed, out=out, resume=True)
    resumed = prune(rows(), out=out, resume=True)
    assert resumed.frontier.points == finished.frontier.points


def test_a_run_of_a_frame_is_resumed_without_it(finished, tmp_path: Path) -> None:
    run, out = finished.run, tmp_path / "run"
    with Run.started(
        out, replace(run.config, data=replace(run.config.data, paths=(str(out / "data.parquet"),)))
    ) as new:
        pl.read_parquet(run.folder / "data.parquet").write_parquet(out / "data.parquet")
    assert thresher.prune(new.config, out=out, resume=True).frontier.points == finished.frontier.points
    result = CliRunner().invoke(app, ["prune", "--out", str(out), "--resume"])
    assert result.exit_code == 0, result.output


def test_a_run_of_a_frame_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "run"
    prune(rows(400), out=out)
    result = prune(rows(300), out=out, force=True)
    assert len(pl.read_parquet(out / "data.parquet")) == result.frontier.metadata["num_rows"] == 300
    with pytest.raises(FolderError, match=r"the input .* is inside"):  # from the file, this would delete the data
        thresher.prune(result.run.config, out=out, force=True)


def test_a_refused_run_leaves_nothing_but_its_table(tmp_path: Path) -> None:
    with pytest.raises(thresher.ThresherError):
        prune(rows(400), budgets=["1GB"], out=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["encoded"]
    assert prune(rows(400), out=tmp_path / "run").frontier.points


def test_settings_of_a_frame(tmp_path: Path) -> None:
    data = DataConfig(fields=(FieldConfig(name="user"), FieldConfig(name="item")), min_count=2)
    config = replace(CONFIG, data=data, max_auc_drop=0.01)
    run = prune(rows(), model="deepfm", budgets="30%, 200", config=config, out=tmp_path / "run").run
    assert isinstance(run.config.model, DeepFmConfig)
    assert (run.config.budgets, run.config.max_auc_drop) == (("30%", "200"), None)
    assert (run.config.data.label, run.config.data.min_count) == ("clicked", 2)
    assert load_bundle(run.bundle("200")).schema.field_names == ("user", "item")


def test_the_default_folder_is_new(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [prune(rows(300)).run.folder for _ in range(2)]
    assert folders[0] != folders[1]
    assert all(re.fullmatch(r"runs/prune-\d{8}-\d{6}(-2)?", folder.as_posix()) for folder in folders)
    with pytest.raises(ConfigError, match="resume needs `out`"):
        prune(rows(300), resume=True)


@pytest.mark.parametrize(
    ("data", "settings", "error", "problem"),
    [
        (
            rows(9).to_numpy(),
            {},
            DataError,
            "a RunConfig, a pandas or polars data frame, or the path of a file",
        ),
        (pl.DataFrame({"clicked": [0, 1]}).lazy(), {}, DataError, r"got a LazyFrame. Call its collect\(\) first"),
        (rows(9), {"label": "click"}, DataError, "no column 'click'; did you mean 'clicked'?"),
        (rows(9), {"config": replace(CONFIG, data=DataConfig(paths=("a.csv",)))}, SettingsConflictError, "given twice"),
        (CONFIG, {}, ConfigError, "label, budgets, config cannot be set beside a RunConfig. Set them in the RunConfig"),
        ("absent.csv", {}, DataError, "absent.csv: no such file"),
        (rows(9).head(0), {}, DataError, "there are no rows"),
    ],
    ids=["array", "lazy", "label", "twice", "settings", "absent", "empty"],
)
def test_other_arguments_raise_before_anything_is_written(tmp_path: Path, data, settings, error, problem) -> None:
    with pytest.raises(error, match=problem):
        prune(data, out=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_methods_are_compared_on_a_frame(tmp_path: Path) -> None:
    config = CompareConfig(
        embedding_dim=4,
        seeds=1,
        trials=1,
        search=CONFIG.search,
        training=CONFIG.training,
        budgets=("20%",),
        rival=False,
    )
    out = tmp_path / "compared"
    words = {"label": "clicked", "methods": ["uniform"], "out": out}
    found = thresher.compare(rows(600), budgets=["40%"], config=config, **words)
    assert {(point.method, point.budget) for point in found.points if point.budget} == {("uniform", "40%")}
    assert (out / "data.parquet").exists()
    again = thresher.compare(rows(600), budgets=["40%", "60%"], config=config, **words)
    assert {point.budget for point in again.points} >= {"40%", "60%"}
    with pytest.raises(FolderError, match="is not the one that"):
        thresher.compare(rows(599), config=config, **words)
    with pytest.raises(ConfigError, match="label cannot be set beside a CompareConfig"):
        thresher.compare(config, label="clicked", out=out)
