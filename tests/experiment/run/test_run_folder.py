"""What `force` throws away: a run, and nothing else."""

from pathlib import Path

import pytest

from thresher._internal.storage.files import exclusive_lock
from thresher.data.config import DataConfig, SplitConfig
from thresher.errors import BudgetError, ConfigError, ThresherError
from thresher.experiment.config import RunConfig
from thresher.experiment.run.run_folder import Run


@pytest.fixture
def run(tmp_path) -> Run:
    """A run that has come some way."""
    run = Run.start(tmp_path / "run", RunConfig())
    for part in ("encoded/table.json", "tickets/300/mask.safetensors", "results.json"):
        (run.folder / part).parent.mkdir(parents=True, exist_ok=True)
        (run.folder / part).write_text("{}")
    return run


def content(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def test_force_throws_a_run_away(run):
    (run.folder / ".results.json.1.partial").write_text("half")
    Run.start(run.folder, RunConfig(seed=1), force=True)
    assert content(run.folder) == ["config.toml", "threads.json"]
    assert Run.open(run.folder).config.seed == 1


def test_force_in_the_folder_one_stands_in(run, monkeypatch):
    monkeypatch.chdir(run.folder)
    Run.start(run.folder.relative_to(run.folder), RunConfig(seed=1), force=True)
    assert content(run.folder) == ["config.toml", "threads.json"]


@pytest.mark.parametrize(
    "place", ["encoded/notes.md", "encoded/train/mine.csv", "report/notes.md", "bundles/mine/a.txt", "bundles/b.json"]
)
def test_what_no_run_wrote_is_not_thrown_away_where_people_look_either(run, place):
    (run.folder / place).parent.mkdir(parents=True, exist_ok=True)
    (run.folder / place).write_text("mine")
    (run.folder / "report").mkdir(exist_ok=True)
    (run.folder / "report" / "frontier.png").write_text("drawn")
    with pytest.raises(ConfigError, match=f"holds files that are not part of a run: {place}"):
        Run.start(run.folder, RunConfig(seed=1), force=True)
    assert (run.folder / place).read_text() == "mine"


def test_what_no_run_wrote_is_not_thrown_away(run):
    (run.folder / "notes.md").write_text("mine")
    (run.folder / ".git").mkdir()
    before = content(run.folder)
    with pytest.raises(ConfigError, match=r"holds files that are not part of a run: \.git, notes\.md\. Move them"):
        Run.start(run.folder, RunConfig(), force=True)
    assert content(run.folder) == before


@pytest.mark.parametrize("text", ["[server]\nport = 80\n", "no toml at all", "seed = 'x'\n"])
@pytest.mark.parametrize("how", [{"force": True}, {"resume": True}, {}])
def test_a_config_file_of_something_else_makes_no_run(tmp_path, text, how):
    (tmp_path / "config.toml").write_text(text)
    (tmp_path / "report").mkdir()
    with pytest.raises(ConfigError, match=r"config\.toml does not hold the settings of a run"):
        Run.start(tmp_path, RunConfig(), **how)
    assert content(tmp_path) == ["config.toml", "report"]


def test_settings_kept_beside_other_files_make_no_run_of_them(tmp_path):
    (tmp_path / "config.toml").write_text("seed = 1\n")
    (tmp_path / "clicks.csv").write_text("")
    with pytest.raises(ConfigError, match=r"holds files that are not part of a run: clicks\.csv"):
        Run.start(tmp_path, RunConfig(), force=True)
    assert content(tmp_path) == ["clicks.csv", "config.toml"]


@pytest.mark.parametrize(
    "data",
    [
        {"source": "encoded", "paths": ("run/encoded",)},
        {"source": "encoded", "paths": ("link",)},
        {"paths": ("*/results.json",)},
        {"source": "movielens-1m", "data_dir": "run"},
        {"paths": ("clicks.csv",), "vocabulary_like": "run/encoded"},
        {"paths": ("clicks.csv",), "split": SplitConfig(by="files", validation_paths=("a",), test_paths=("run/b",))},
    ],
)
def test_data_that_is_to_be_read_is_not_thrown_away_first(run, tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("run/encoded")
    before = content(run.folder)
    with pytest.raises(ConfigError, match=r"the input .* is inside .*run, which would be replaced"):
        Run.start(run.folder, RunConfig(data=DataConfig(**data)), force=True)
    assert content(run.folder) == before


@pytest.mark.parametrize("start", ["run", "run/bundles/2pct", "link"])
def test_the_model_to_start_from_is_not_thrown_away_first(run, tmp_path, monkeypatch, start):
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to("run")
    before = content(run.folder)
    config = RunConfig(start_from=start)
    if start == ".":  # a folder around the run is not replaced
        Run.start(run.folder, config, force=True)
        return
    with pytest.raises(
        ConfigError, match=r"trained model of start_from \(.*\) is inside .*run, which would be replaced"
    ):
        Run.start(run.folder, config, force=True)
    assert content(run.folder) == before


def test_a_folder_with_only_an_encoded_table_is_free(run):
    for part in ("config.toml", "tickets/300/mask.safetensors", "results.json"):
        (run.folder / part).unlink()
    (run.folder / "tickets" / "300").rmdir()
    with pytest.raises(ConfigError, match="is not empty and holds no run"):
        Run.start(run.folder, RunConfig())
    (run.folder / "tickets").rmdir()
    (run.folder / ".config.toml.1.partial").write_text("half")
    Run.start(run.folder, RunConfig())
    assert (run.encoded / "table.json").exists()
    (run.folder / "config.toml").unlink()
    Run.start(run.folder, RunConfig(), force=True)
    assert content(run.folder) == ["config.toml", "threads.json"]


def test_a_folder_that_only_bears_the_name_of_a_table_is_none(tmp_path):
    (tmp_path / "encoded").mkdir()
    (tmp_path / "encoded" / "letters.txt").write_text("Dear")
    for force in (False, True):
        with pytest.raises(ConfigError, match="is not empty and holds no run"):
            Run.start(tmp_path, RunConfig(), force=force)
    assert content(tmp_path) == ["encoded", "encoded/letters.txt"]


@pytest.mark.parametrize("before", ["nothing", "a folder", "a run"])
def test_a_run_refused_before_it_trains_leaves_its_table_alone(tmp_path, before):
    out = tmp_path / "run"
    if before == "a folder":
        out.mkdir()
    elif before == "a run":
        Run.start(out, RunConfig())

    def refuse(*, encodes: bool) -> None:
        with Run.started(out, RunConfig(seed=1), force=before == "a run") as run:
            if encodes:
                run.encoded.mkdir()
                (run.encoded / "table.json").write_text("{}")
            run.tickets.mkdir()
            raise BudgetError("too much")

    with pytest.raises(BudgetError):
        refuse(encodes=False)
    assert out.exists() == (before != "nothing")
    assert not out.exists() or not content(out)
    with pytest.raises(BudgetError):
        refuse(encodes=True)
    assert content(out) == ["encoded", "encoded/table.json"]


def test_a_run_that_another_process_works_on_is_left_alone(run):
    before = content(run.folder)
    for words in ({"resume": True}, {"force": True}):
        with (
            exclusive_lock(run.folder),
            pytest.raises(ThresherError, match="another process is using"),
            Run.started(run.folder, RunConfig(), **words),
        ):
            pass
        assert content(run.folder) == before


def test_a_running_run_is_locked(tmp_path):
    with (
        Run.started(tmp_path / "run", RunConfig()),
        pytest.raises(ThresherError, match="another process is using"),
        Run.started(tmp_path / "run", RunConfig(), resume=True),
    ):
        pass
    assert (tmp_path / "run" / "config.toml").exists()


def test_paths_and_texts_are_the_same_settings(tmp_path):
    config = RunConfig(data=DataConfig(paths=(tmp_path / "rows.csv",)))  # type: ignore[arg-type]
    Run.start(tmp_path / "run", config)
    assert Run.start(tmp_path / "run", config, resume=True).config == Run.open(tmp_path / "run").config
    with pytest.raises(ConfigError, match='RunConfig: seed: expected an integer, got "x"'):
        Run.start(tmp_path / "other", RunConfig(seed="x"))  # type: ignore[arg-type]
    assert not (tmp_path / "other").exists()
