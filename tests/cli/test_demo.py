from dataclasses import replace

import pytest

from thresher.cli import demo
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.experiment.runs import Run


@pytest.fixture
def short_demo(monkeypatch):
    """The demo on fewer rows, with the epochs of a second."""
    config = demo.demo_config()
    config = replace(
        config,
        data=DataConfig(source="synthetic", synthetic=SyntheticConfig(num_rows=2_000, field_size=20)),
        search=replace(config.search, warmup_epochs=1, plan_epochs=2),
        training=replace(config.training, max_epochs=1),
        budgets=("20%",),
        teacher_share=0.0,
    )
    monkeypatch.setattr(demo, "demo_config", lambda: config)
    return config


def test_an_earlier_demo_is_replaced(thresher, short_demo, tmp_path):
    out = tmp_path / "demo"
    assert thresher("demo", "--out", out).exit_code == 0
    (out / "results.json").write_text("{}")
    again = thresher("demo", "--out", out)
    assert again.exit_code == 0, again.stderr
    assert "every field = 0" in again.stderr
    assert (out / "results.json").read_text() != "{}"


def test_the_demo_throws_away_nothing_but_a_demo(refused, finished, short_demo, tmp_path):
    seed = Run.open(finished.out).config.seed
    assert "holds another run than the demo's (budgets was" in refused("demo", "--out", finished.out)
    assert Run.open(finished.out).config.seed == seed
    assert (finished.out / "results.json").exists()
    project = tmp_path / "project"
    project.mkdir()
    for name, error in (
        ("notes.md", "is not empty and holds no run"),
        ("config.toml", "not hold the settings of a run"),
    ):
        (project / name).write_text("name = 'mine'\n")
        assert error in refused("demo", "--out", project)
    assert {path.name for path in project.iterdir()} == {"config.toml", "notes.md"}
