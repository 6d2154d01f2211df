"""A comparison: chosen on validation, tested once, resumed and cut short without loss, open to methods from outside."""

import json
import re
from dataclasses import replace
from itertools import count, product
from pathlib import Path

import pytest

import thresher.experiment.compare
import thresher.experiment.comparison.choice
import thresher.experiment.comparison.sweep
import thresher.experiment.stages
from thresher.baselines.candidate_sizes import DartsEmbConfig
from thresher.baselines.frequent import FrequentConfig
from thresher.baselines.magnitude import MagnitudeConfig
from thresher.baselines.mde import MdeConfig
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.embeddings.method_registry import describe_grid, frontier_points, method_grid, registered_embeddings
from thresher.embeddings.pep import PepConfig
from thresher.embeddings.uniform import UniformConfig
from thresher.errors import ConfigError, ThresherError
from thresher.experiment.compare import compare
from thresher.experiment.comparison.compare_config import CompareConfig, with_epochs
from thresher.experiment.comparison.compared_points import comparison_text
from thresher.search.schedule import SearchConfig
from thresher.search.ticket_files import load_ticket
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

FAST = OptimizerConfig(learning_rate=1e-2)
CONFIG = CompareConfig(
    data=DataConfig(
        source="synthetic",
        synthetic=SyntheticConfig(num_rows=3_000, num_signal_fields=2, num_noise_fields=2, field_size=40, seed=2),
    ),
    methods=("pep", "uniform", "mde", "magnitude"),
    budgets=("40%", "200"),
    embedding_dim=8,
    seeds=2,
    trials=2,
    rival=False,
    search=SearchConfig(warmup_epochs=1, plan_epochs=2, clock_steps=5, max_epochs=2, optimizer=FAST),
    training=TrainingConfig(max_epochs=2, batch_size=256, patience=1, optimizer=FAST),
)
GRIDS = {
    "pep": [PepConfig(embedding_dim=width) for width in (8, 4, 2)],
    "uniform": [UniformConfig(embedding_dim=8)],
    "mde": [MdeConfig(embedding_dim=8, num_blocks=2, temperature=heat) for heat in (0.1, 0.6)],
    "magnitude": [MagnitudeConfig(embedding_dim=8), MagnitudeConfig(embedding_dim=8, search_weight_decay=1e-3)],
    "frequent": [FrequentConfig(embedding_dim=width) for width in (2, 4)],
    "darts-emb": [DartsEmbConfig(candidate_sizes=(2, 4), embedding_dim=4)],
}
KEYS = {"source", "model", "method", "config", "seed", "budget", "num_parameters", "storage_bytes", "validation_auc",
        "validation_logloss", "test_auc", "test_logloss", "seconds", "versions", "machine"}  # fmt: skip


@pytest.fixture(autouse=True)
def small_grids(monkeypatch):
    monkeypatch.setattr(thresher.experiment.comparison.sweep, "method_grid", GRIDS.__getitem__)
    points = {"uniform": [UniformConfig(embedding_dim=width) for width in (8, 2)]}
    monkeypatch.setattr(thresher.experiment.comparison.sweep, "frontier_points", lambda method: points.get(method, []))


@pytest.fixture
def trainings(monkeypatch):
    """How many trainings were begun anew, searches left out."""
    begun = []
    for name in ("train_model", "retrain_ticket"):
        train = getattr(thresher.experiment.stages, name)
        monkeypatch.setattr(
            thresher.experiment.stages,
            name,
            lambda *args, _train=train, **more: begun.append(1) or _train(*args, **more),
        )
    return begun


@pytest.fixture
def slow_clock(monkeypatch):
    """A second passes whenever somebody looks, however fast the machine is; each step of a training is looked at."""
    looks = count()
    for module in ("experiment.comparison.sweep", "training.progress"):
        monkeypatch.setattr(f"thresher.{module}.monotonic", looks.__next__)


def test_every_point_is_measured_once_and_nothing_twice(tmp_path, reads_of_test_split, trainings):
    found = compare(CONFIG, out=tmp_path / "c")
    points = found.points
    assert found.finished
    assert not found.unmet
    by_budgets = [point for point in points if point.budget is not None]
    own = [point for point in points if point.budget is None and point.method == "uniform"]
    floor = [point for point in points if point.method == "lr"]
    assert len(by_budgets) == 4 * 2 * 2
    assert sorted((point.num_parameters, point.seed) for point in own) == sorted(
        (width * own[0].num_parameters // own[0].config["embedding_dim"], seed) for width in (2, 8) for seed in (0, 1)
    )
    assert [(point.num_parameters, point.storage_bytes) for point in floor] == [(0, 0)] * 2
    assert len(reads_of_test_split) == len(points)  # once per reported model; trials are not tested
    for path in (tmp_path / "c" / "points").rglob("*.json"):
        assert set(json.loads(path.read_text())) >= KEYS
    for point in by_budgets:
        assert point.num_parameters <= (
            200 if point.budget == "200" else 0.4 * max(point.num_parameters for point in own)
        )
        assert point.seconds == point.search_seconds + point.retrain_seconds
        assert 1 <= point.retrain_epochs <= CONFIG.training.max_epochs
    for point in points:
        searched = point.budget is not None and point.method in ("pep", "magnitude")
        assert (point.search_seconds > 0) == searched
        assert point.search_epochs == (0 if not searched else 3 if point.method == "pep" else 2)
    assert {path.name for path in (tmp_path / "c").iterdir()} == {
        "settings.toml", "threads.json", "encoded", "cells", "points", "report", "frontier-fm.png", "frontier-fm.svg"
    }  # fmt: skip
    assert not list((tmp_path / "c").rglob("checkpoint.safetensors"))

    trainings.clear()
    again = compare(CONFIG, out=tmp_path / "c")
    assert again.points == points
    assert not trainings
    with pytest.raises(
        ConfigError, match="other settings or trials"
    ):  # more trials might choose other settings than earlier seeds had
        compare(replace(CONFIG, trials=3), out=tmp_path / "c")
    more = compare(replace(CONFIG, seeds=3), out=tmp_path / "c")
    assert len(more.points) > len(points)
    assert {point.seed for point in more.points} == {0, 1, 2}


def test_budgets_a_method_has_the_same_settings_for_share_a_training(tmp_path, reads_of_test_split, trainings):
    """Both 90 % and 88 % of a table 8 wide leave room for 7 columns: one training, two points."""
    config = replace(CONFIG, methods=("uniform",), budgets=("90%", "88%", "20%"), seeds=1, trials=1)
    found = compare(config, out=tmp_path / "c")
    by_budget = {point.budget: point for point in found.points if point.method == "uniform" and point.budget}
    large, same, small = (by_budget[budget] for budget in config.budgets)
    assert large.num_parameters == same.num_parameters > small.num_parameters
    assert (large.config, large.test_auc, large.seconds) == (same.config, same.test_auc, same.seconds)
    assert same.trials[0]["validation_auc"] == same.validation_auc
    settings, own, floor = 2, 2, 1
    assert len(trainings) == 2 * settings + own + floor  # each setting is asked for as a trial, then for its test
    assert len(reads_of_test_split) == settings + own + floor
    assert not list((tmp_path / "c").rglob("checkpoint*"))


def test_further_seeds_can_be_made_without_the_first_ones(tmp_path):
    config = replace(CONFIG, methods=("pep", "uniform"), seeds=2, trials=1)
    both = compare(config, out=tmp_path / "both")
    second = compare(replace(config, seeds=1, first_seed=1), out=tmp_path / "second")

    def measured(points):
        return [replace(point, seconds=0, search_seconds=0, retrain_seconds=0, trials=[]) for point in points]

    assert {point.seed for point in second.points} == {1}
    assert measured(second.points) == measured(point for point in both.points if point.seed == 1)
    added = compare(replace(config, seeds=1), out=tmp_path / "second")  # the first seed, later, to the same end
    assert measured(added.points) == measured(both.points)


def test_settings_are_tried_on_the_first_seed_and_on_no_other(tmp_path):
    config = replace(CONFIG, methods=("magnitude",), budgets=("40%",), seeds=1, first_seed=1)
    found = compare(config, out=tmp_path / "c")
    assert {len(point.trials) for point in found.points if point.budget} == {2}
    assert not list((tmp_path / "c").rglob("*seed0*"))
    assert not list((tmp_path / "c").rglob("checkpoint.safetensors"))
    with pytest.raises(ConfigError, match="first_seed was 1, is 0"):  # another choice might be made there
        compare(replace(config, first_seed=0), out=tmp_path / "c")


def test_teacher_share_gives_all_methods_the_same_soft_labels(tmp_path, reads_of_test_split):
    config = replace(CONFIG, methods=("pep", "uniform"), budgets=("200",), seeds=1, trials=1)
    by_labels = compare(config, out=tmp_path / "labels")
    assert not (tmp_path / "labels" / "cells" / "fm" / "teacher").exists()
    reads_of_test_split.clear()
    taught = compare(replace(config, teacher_share=1.0), out=tmp_path / "taught")
    assert len(list((tmp_path / "taught" / "cells" / "fm" / "teacher").rglob("soft_labels.npy"))) == 1
    assert len(reads_of_test_split) == len(taught.points)  # the teacher's test rows are not read
    for one, other in zip(by_labels.points, taught.points, strict=True):
        assert (one.model, one.method, one.budget) == (other.model, other.method, other.budget)
        assert (one.validation_auc == other.validation_auc) == (one.model == "lr")


def test_settings_are_chosen_on_validation_from_the_grid(tmp_path):
    found = compare(replace(CONFIG, methods=("pep", "magnitude"), seeds=2), out=tmp_path / "c")
    for point in found.points:
        if point.budget is None:
            continue
        tried = {trial["config"]["embedding_dim"]: trial["validation_auc"] for trial in point.trials}
        assert len(point.trials) == 2  # as many as every method may
        if point.method == "pep":
            assert set(tried) == {8, 4}
        best = max(point.trials, key=lambda trial: trial["validation_auc"])
        assert point.config == best["config"]
        if point.seed == 0:
            assert point.validation_auc == best["validation_auc"]


@pytest.fixture
def widths_by_budget(monkeypatch):
    """Trials of the large budget are won by the wide table, those of all others by the narrow one."""

    def on_validation(cell, ticket):
        won = (cell.config.embedding.embedding_dim == 8) == (str(ticket.budget) == "500")
        return {"validation_auc": 0.6 + 0.1 * won, "num_parameters": ticket.num_parameters}

    monkeypatch.setattr(thresher.experiment.comparison.choice, "_validation_result", on_validation)


def cut_at(folder):
    """(method, width, budget) → the steps its tickets were cut at, by seed."""
    steps = {}
    for path in sorted((folder / "cells").rglob("ticket.json")):
        ticket, cell = load_ticket(path.parent), path.parents[2]
        width = json.loads((cell / "settings.json").read_text())["embedding_dim"]
        place = (ticket.provenance.method, width, str(ticket.budget))
        steps.setdefault(place, {})[ticket.provenance.seed] = ticket.provenance.step
    return steps


@pytest.mark.usefixtures("widths_by_budget")
def test_all_seeds_are_searched_over_the_same_range_whatever_settings_won(tmp_path):
    """A plan falls to the smallest budget of its search: cut on the way there, or at its end, tickets differ."""
    config = replace(CONFIG, methods=("pep",), budgets=("500", "200"))
    found = compare(config, out=tmp_path / "c")
    widths = {(point.budget, point.seed): point.config["embedding_dim"] for point in found.points if point.budget}
    assert widths == {("500", 0): 8, ("500", 1): 8, ("200", 0): 4, ("200", 1): 4}
    steps = cut_at(tmp_path / "c")
    for place in (("pep", 8, "500"), ("pep", 4, "200")):
        assert set(steps[place]) == {0, 1}
        assert len(set(steps[place].values())) == 1
    assert steps["pep", 8, "500"][1] < steps["pep", 8, "200"][1]


@pytest.mark.usefixtures("widths_by_budget")
def test_budgets_of_a_later_call_have_their_own_search_on_all_seeds(tmp_path):
    config = replace(CONFIG, methods=("pep",), budgets=("500", "200"), seeds=1, trials=1)
    compare(config, out=tmp_path / "c")
    more = compare(replace(config, budgets=("500", "200", "100"), seeds=2), out=tmp_path / "c")
    assert {(point.budget, point.seed) for point in more.points if point.budget} == set(
        product(("500", "200", "100"), (0, 1))
    )
    steps = cut_at(tmp_path / "c")
    assert steps["pep", 8, "500"][0] == steps["pep", 8, "500"][1]
    for budget in ("200", "100"):  # the smallest of their searches, so both end a plan
        assert set(steps["pep", 8, budget].values()) == {max(steps["pep", 8, "200"].values())}
    written_otherwise = compare(replace(config, budgets=("0.5k",), seeds=3), out=tmp_path / "c")
    assert [point.budget for point in written_otherwise.points if point.seed == 2 and point.budget] == ["0.5k"]
    assert set(cut_at(tmp_path / "c")["pep", 8, "500"]) == {0, 1, 2}


def test_unmet_budgets_are_reported_and_others_are_met(tmp_path):
    config = replace(CONFIG, methods=("darts-emb", "pep"), seeds=1, trials=1)
    found = compare(config, out=tmp_path / "c")
    assert list(found.unmet) == [("fm", "darts-emb", "200")]
    assert "smallest candidate sizes" in found.unmet["fm", "darts-emb", "200"]
    methods = [(point.method, point.budget) for point in found.points]
    assert ("darts-emb", "40%") in methods
    assert ("pep", "200") in methods


def test_a_method_that_meets_no_budget_is_reported(tmp_path):
    config = replace(CONFIG, methods=("darts-emb",), budgets=("200", "100"), seeds=1, trials=1)
    found = compare(config, out=tmp_path / "c")
    assert set(found.unmet) == {("fm", "darts-emb", "200"), ("fm", "darts-emb", "100")}
    assert [point.method for point in found.points] == ["lr"]


def test_ctrl_c_is_an_interrupt_and_no_time_limit(tmp_path):
    class Pressed:
        def update(self, state):
            raise KeyboardInterrupt

        def columns(self, source):
            pass

        def encoding(self, done, total, message):
            pass

    with pytest.raises(KeyboardInterrupt):
        compare(CONFIG, out=tmp_path / "c", time_limit=1_000_000.0, progress=Pressed())


@pytest.mark.usefixtures("slow_clock")
def test_an_interrupted_comparison_resumes_to_the_same_results(tmp_path):
    config = replace(CONFIG, methods=("magnitude", "mde"), budgets=("40%",), seeds=1)
    whole = compare(config, out=tmp_path / "whole")
    cut = compare(config, out=tmp_path / "cut", time_limit=0.0)
    assert not cut.finished
    assert not cut.points
    rounds = 0
    while not (cut := compare(config, out=tmp_path / "cut", time_limit=71)).finished:
        rounds += 1
        assert rounds < 60
    assert rounds > 3

    def measured(points):
        return [replace(point, seconds=0, search_seconds=0, retrain_seconds=0) for point in points]

    assert measured(cut.points) == measured(whole.points)


def test_other_data_or_training_is_refused_in_the_same_folder(tmp_path):
    config = replace(CONFIG, methods=("uniform",), seeds=1, budgets=("40%",))
    compare(config, out=tmp_path / "c")
    with pytest.raises(ConfigError, match=r"other settings.*training.max_epochs was 2, is 9"):
        compare(replace(config, training=replace(config.training, max_epochs=9)), out=tmp_path / "c")
    (tmp_path / "other").mkdir()
    for name in ("data.parquet", "threads.json"):  # a comparison writes files of these names too
        (tmp_path / "other" / name).write_text("mine")
    with pytest.raises(ConfigError, match="holds no comparison"):
        compare(config, out=tmp_path / "other")
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["data.parquet", "threads.json"]


def test_unknown_names_are_refused_before_anything_runs():
    with pytest.raises(ConfigError, match="did you mean 'pep'"):
        replace(CONFIG, methods=("peb",))
    with pytest.raises(ConfigError, match="deepfm"):
        replace(CONFIG, models=("deepfn",))
    with pytest.raises(ConfigError, match="'lr' has no embedding to compare methods on"):
        replace(CONFIG, models=("fm", "lr"))
    with pytest.raises(ConfigError, match="at least 1"):
        replace(CONFIG, seeds=0)
    with pytest.raises(ConfigError, match="must be 0 or more"):
        replace(CONFIG, first_seed=-1)


def test_fewer_epochs_shorten_search_and_training():
    short = with_epochs(CompareConfig(), 6)
    assert short.training.max_epochs == 6
    assert (short.search.max_epochs, short.search.max_warmup_epochs, short.search.plan_epochs) == (6, 3, 3)


def test_every_method_of_ours_states_a_grid_of_its_own_configs():
    for method, registered in registered_embeddings().items():
        grid = method_grid(method)
        assert grid
        assert all(type(config) is registered.config for config in grid)
        assert len(set(grid)) == len(grid)
    assert [config.embedding_dim for config in frontier_points("uniform")] == [64, 32, 16, 8, 4]


def test_progress_names_model_method_seed_and_position(tmp_path):
    stages = []

    class Watch:
        def update(self, state):
            stage = f"{state.group} · {state.stage}"
            if stage not in stages:
                stages.append(stage)

        def columns(self, source):
            pass

        def encoding(self, done, total, message):
            pass

    config = replace(CONFIG, methods=("pep", "uniform"), budgets=("40%",))
    compare(config, out=tmp_path / "c", progress=Watch())
    places = [stage.split(" · ")[0] for stage in stages]
    assert sorted(set(places)) == ["1/4", "2/4", "3/4", "4/4"]
    assert places == sorted(places)
    assert "1/4 · fm · pep · seed 0 · trial 2/2: embedding_dim 4 · search" in stages
    assert any(stage.startswith("1/4 · lr · no embedding · seed 0 · floor · ") for stage in stages)
    assert any(stage.startswith("2/4 · fm · uniform · seed 0 · width 2 · ") for stage in stages)
    assert any(stage.startswith("3/4 · fm · pep · seed 1 · chosen: embedding_dim ") for stage in stages)
    assert len(set(stages)) == len(stages)


def test_the_first_three_settings_span_what_a_grid_varies():
    front = {method: method_grid(method)[:3] for method in ("mde", "mgqe", "pep", "dnis")}
    assert [config.temperature for config in front["mde"]] == [0.3, 0.1, 0.2]
    assert {config.num_blocks for config in front["mde"]} == {8, 16}
    assert [config.num_subspaces for config in front["mgqe"]] == [4, 8, 16]
    assert len(method_grid("mgqe")) == 24
    for method in ("pep", "dnis"):
        assert [config.embedding_dim for config in front[method]] == [128, 64, 32]


def test_the_docs_state_the_grids_as_they_are():
    page = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    table = page[page.index("| method | tried, in this order |") :].split("\n\n")[0].splitlines()[2:]
    stated = dict(re.fullmatch(r"\| `(.+)` \| (.+) \|", row).groups() for row in table)
    ours = [
        name for name, known in registered_embeddings().items() if known.embedding.__module__.startswith("thresher.")
    ]
    assert stated == {method: describe_grid(method, first=6) for method in ours}


def test_the_rival_has_the_bytes_of_pep_and_no_search(tmp_path):
    config = replace(CONFIG, methods=("pep",), rival=True, seeds=2)
    points = compare(config, out=tmp_path).points
    found = {(point.method, point.budget, point.seed): point for point in points}
    for budget, seed in product(config.budgets, (0, 1)):
        rival, pep = found["frequent", budget, seed], found["pep", budget, 0]
        assert 0.8 * pep.storage_bytes < rival.storage_bytes <= pep.storage_bytes
        assert rival.search_epochs == 0
        assert len(rival.trials) == 2
        assert rival.config["min_count"] >= 1
        assert rival.bundle_bytes > rival.storage_bytes
        assert rival.floor_gain_error > 0
        assert (rival.equal_bytes_of, pep.equal_bytes_of) == ("pep", None)


def test_the_sentence_about_the_rival_names_the_method_whose_bytes_it_has(tmp_path):
    config = replace(CONFIG, methods=("uniform", "magnitude"), rival=True, seeds=1, budgets=("40%",))
    compared = compare(config, out=tmp_path)
    better = [
        replace(point, test_auc=0.9 if point.method == "frequent" else 0.5)
        for point in compared.points
        if point.budget is not None
    ]
    text = comparison_text(better, config.budgets)
    assert "is at least as good as uniform at equal bytes" in " ".join(text.split())


def test_a_comparison_of_unreadable_data_leaves_nothing(tmp_path):
    (path := tmp_path / "rows.csv").write_text("label,a\n1,x\n")
    config = replace(CONFIG, data=DataConfig(paths=(str(path),), label="label"))
    with pytest.raises(ThresherError):
        compare(config, out=tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == [path]
