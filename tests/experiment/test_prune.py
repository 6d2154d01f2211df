"""The whole path on made-up rows: exact budgets, honest files, a bundle that predicts, kills that leave no trace."""

import html
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from thresher._internal import mapped_tensors as tables
from thresher._internal.storage.files import read_json
from thresher.baselines.mde import MdeConfig
from thresher.data.config import DataConfig, DenseConfig, FieldConfig, SyntheticConfig
from thresher.data.encode.sources import build_source
from thresher.embeddings.pep import PepConfig
from thresher.embeddings.uniform import UniformConfig
from thresher.errors import BudgetError, ConfigError, DataError
from thresher.experiment.config import RunConfig
from thresher.experiment.effort import RetrainingConfig
from thresher.experiment.prune import encode_data, prune
from thresher.experiment.run.cost import cost_table
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_report import _with_recommendation, drop_doubts
from thresher.experiment.run.run_workflow import RunWorkflow
from thresher.models.autoint import AutoIntConfig
from thresher.models.fm import DeepFmConfig, LogisticRegressionConfig
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.search.budget import Budget
from thresher.search.find_tickets import find_tickets
from thresher.search.schedule import SearchConfig
from thresher.search.ticket_files import load_ticket
from thresher.serving.predictor import load_bundle
from thresher.training.checkpoint import derive_seed
from thresher.training.distillation import choose_plan
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

FAST = OptimizerConfig(learning_rate=1e-2)
CONFIG = RunConfig(
    effort="paper",
    data=DataConfig(
        source="synthetic",
        synthetic=SyntheticConfig(num_rows=8_000, num_signal_fields=3, num_noise_fields=3, field_size=40, seed=2),
    ),
    embedding=PepConfig(embedding_dim=8),
    search=SearchConfig(warmup_epochs=2, plan_epochs=4, clock_steps=5, optimizer=FAST),
    training=TrainingConfig(max_epochs=6, batch_size=256, patience=2, optimizer=FAST),
    budgets=("300", "5%", "1KB"),
)


TAUGHT = replace(CONFIG, teacher_share=1.0, distill_search=True, num_teachers=2)


def files_of(folder):
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def pruned(tmp_path_factory):
    return prune(CONFIG, out=tmp_path_factory.mktemp("runs") / "whole")


def test_every_budget_is_met_and_stored(pruned):
    dense, points = pruned.frontier.dense, {point.budget: point for point in pruned.frontier.points}
    assert points["300"].num_parameters == 300
    assert points["5%"].num_parameters == int(0.05 * dense.num_parameters)
    assert 700 < points["1KB"].storage_bytes <= 1_000
    assert dense.storage_bytes == dense.num_parameters * 4
    for point in points.values():
        assert point.test_auc > 0.6
        assert point.storage_bytes < dense.storage_bytes


def test_floor_and_whole_bytes_are_in_results(pruned):
    results = read_json(pruned.run.results)
    floor, dense, points = results["floor"], results["dense"], results["points"]
    assert floor["num_parameters"] == floor["storage_bytes"] == 0
    table = pruned.run.encoded
    vocabularies = sum(path.stat().st_size for path in (*table.glob("vocabularies/*"), table / "schema.json"))
    num_features = results["num_features"]
    assert floor["bundle_bytes"] == vocabularies + 4 * (num_features + 1)  # first-order weights and the bias
    assert dense["bundle_bytes"] == floor["bundle_bytes"] + dense["storage_bytes"]
    for point in points:
        bundle = pruned.run.bundle(point["budget"])
        assert point["bundle_bytes"] == sum(
            path.stat().st_size for path in bundle.rglob("*") if path.is_file() and path.name != "README.md"
        )
    for point in (dense, *points):
        assert point["floor_gain"] == pytest.approx(point["validation_auc"] - floor["validation_auc"], abs=1e-6)
        assert 0 < point["floor_gain_error"] < 2 * results["auc_standard_error"]["validation"]
    assert results["cost"]["stages"][0]["stage"] == "no embedding"


def test_with_first_order_weights_searched_all_rows_have_the_same_base(tmp_path):
    config = replace(CONFIG, embedding=PepConfig(embedding_dim=8, first_order=True), budgets=("50%",))
    config = replace(config, search=replace(CONFIG.search, warmup_epochs=1, plan_epochs=1), teacher_share=0.0)
    frontier = prune(replace(config, training=replace(CONFIG.training, max_epochs=1)), out=tmp_path).frontier
    assert frontier.dense.num_parameters == 9 * frontier.metadata["num_features"]
    assert frontier.share_of_dense(frontier.points[0]) == pytest.approx(0.5, abs=0.001)


def test_tables_in_files_give_the_same_run_and_leave_nothing_behind(tmp_path, monkeypatch):
    config = replace(CONFIG, budgets=("300",), search=replace(CONFIG.search, optimizer=replace(FAST, updates="rows")))
    in_memory = prune(config, out=tmp_path / "memory")
    created, in_file = [], tables._in_file
    monkeypatch.setattr(tables, "LARGE_BYTES", 1)
    monkeypatch.setattr(tables, "_in_file", lambda *args: created.append(args[1]) or in_file(*args))
    mapped, out = replace(config, map_tables_over_mb=0), tmp_path / "files"

    class Killed(Exception):
        pass

    class KillsTheSearch:
        def update(self, state):
            if state.stage == "search" and state.epoch > 3:
                raise Killed

        def columns(self, source):
            pass

        def encoding(self, done, total, message):
            pass

    with pytest.raises(Killed):
        prune(mapped, out=out, progress=KillsTheSearch())
    assert (in_memory.frontier.metadata["num_features"], 8) in created
    in_files = prune(mapped, out=out, resume=True)
    assert in_files.frontier.points == in_memory.frontier.points
    assert not files_of(out / "tables")


def test_the_smallest_ticket_decides_about_distillation_on_validation(pruned):
    retrained, teacher = pruned.run.folder / "retrained", pruned.frontier.metadata["distillation"]
    assert list(teacher["validation_auc"]) == ["hard-labels", "soft-labels-1"]
    by_labels, taught = teacher["validation_auc"].values()
    assert by_labels > taught  # half of the fields are noise, which the dense model memorises
    assert teacher["search_share"] == teacher["share"] == 0.0
    smallest = min(pruned.frontier.points, key=lambda point: point.num_parameters)
    assert smallest.validation_auc == by_labels
    assert teacher["decided_by"] == smallest.budget
    tried = {path.parent.relative_to(retrained).as_posix() for path in retrained.rglob("history.jsonl")}
    others = {f"{folder.name}/hard-labels" for folder in retrained.iterdir() if folder.is_dir()}
    assert tried == others | {f"{Budget.parse(smallest.budget).slug}/soft-labels-1"}
    assert not list(pruned.run.folder.glob("tickets/*/history.jsonl"))  # there was one search
    assert not list(retrained.rglob("checkpoint.safetensors"))
    labels = np.load(pruned.run.soft_labels)
    assert 0 < labels.min() < labels.max() < 1


def test_several_teachers_are_trained_once_and_their_mean_is_used(tmp_path, reads_of_test_split):
    config = replace(CONFIG, budgets=("300",), teacher_share=1.0, distill_search=False)
    alone = prune(config, out=tmp_path / "alone")
    reads_of_test_split.clear()
    result = prune(replace(config, num_teachers=3), out=tmp_path / "three")
    assert len(reads_of_test_split) == 3  # of the floor, the dense model and the pruned one, but of no other teacher
    assert result.frontier.dense == alone.frontier.dense
    others = [np.load(result.run.dense / f"teacher-{number}" / "soft_labels.npy") for number in (2, 3)]
    soft_label_parts = [np.load(alone.run.soft_labels), *others]
    np.testing.assert_array_equal(np.load(result.run.teacher_labels(1)), soft_label_parts[0])
    assert len({labels.tobytes() for labels in soft_label_parts}) == 3
    np.testing.assert_allclose(np.load(result.run.soft_labels), np.mean(soft_label_parts, axis=0), atol=1e-6)
    assert result.frontier.points[0].validation_auc != alone.frontier.points[0].validation_auc
    assert not list(result.run.folder.rglob("checkpoint.safetensors"))

    assert result.frontier.metadata["distillation"]["num_teachers"] == 3

    together = result.run.soft_labels.read_bytes()
    result.run.soft_labels.unlink()
    result.run.teacher_labels(3).unlink()  # as after a kill while the last of them was trained
    before = {path: path.stat().st_mtime_ns for path in result.run.dense.glob("teacher-2/*")}
    reads_of_test_split.clear()
    prune(result.run.config, out=result.run.folder, resume=True)
    assert result.run.soft_labels.read_bytes() == together
    assert before == {path: path.stat().st_mtime_ns for path in result.run.dense.glob("teacher-2/*")}
    assert not reads_of_test_split


def test_teacher_models_of_other_kinds(tmp_path, reads_of_test_split):
    config = replace(CONFIG, budgets=("300",), teacher_share=1.0, distill_search=False)
    network = DeepFmConfig(hidden_sizes=(8,), dropout=0.0)
    run = prune(replace(config, num_teachers=2, teacher_models=(network,)), out=tmp_path / "four").run
    assert len(reads_of_test_split) == 3  # of the floor, the dense model and the pruned one
    two = prune(replace(config, num_teachers=2), out=tmp_path / "two").run
    assert Run.open(run.folder).config.all_teachers() == [config.model, config.model, network, network]
    soft_label_parts = [np.load(run.teacher_labels(number)) for number in (1, 2, 3, 4)]
    for number in (1, 2):
        np.testing.assert_array_equal(np.load(two.teacher_labels(number)), soft_label_parts[number - 1])
    np.testing.assert_allclose(np.load(run.soft_labels), np.mean(soft_label_parts, axis=0), atol=1e-6)
    # a model says the same whether it teaches another one or is pruned itself
    seed = derive_seed(config.seed, "teacher", 3)
    itself = prune(replace(config, model=network, seed=seed), out=tmp_path / "itself").run
    np.testing.assert_array_equal(soft_label_parts[2], np.load(itself.soft_labels))
    assert read_json(run.results)["distillation"]["teacher_models"] == ["deepfm"]


def test_a_teacher_model_that_does_not_fit_the_rows_is_refused_before_training(tmp_path):
    logs = tmp_path / "logs.csv"
    logs.write_text("clicked,user,price\n" + "".join(f"{n % 2},u{n % 7},{n / 8}\n" for n in range(200)))
    data = DataConfig(source="files", paths=(str(logs),), label="clicked", dense=(DenseConfig(name="price"),))
    data = replace(data, fields=(FieldConfig(name="user"),), min_count=1)
    config = replace(CONFIG, data=data, teacher_models=(AutoIntConfig(deep_term=False, linear_term=False),))
    with pytest.raises(ConfigError, match="dense inputs"):
        prune(config, out=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["encoded"]


def test_where_distillation_helps_a_second_search_uses_soft_labels(tmp_path, pruned):
    config = replace(CONFIG, teacher_share=1.0)  # taken for granted in retraining, so that only the search is open
    result = prune(config, out=tmp_path / "run")
    run, teacher = result.run, result.frontier.metadata["distillation"]
    assert list(teacher["validation_auc"]) == ["soft-labels-1", "soft-labels-1-in-search"]
    one_search, two_searches = teacher["validation_auc"].values()
    assert teacher["share"] == 1.0
    assert teacher["search_share"] == (1.0 if two_searches > one_search else 0.0)
    smallest = min(result.frontier.points, key=lambda point: point.num_parameters)
    assert smallest.validation_auc == max(one_search, two_searches)
    assert run.tickets == run.folder / "tickets" / ("soft-labels-1" if teacher["search_share"] else "")
    by_labels, taught = (
        load_ticket(folder / "300") for folder in (run.folder / "tickets", run.folder / "tickets/soft-labels-1")
    )
    for name, mask in load_ticket(pruned.run.tickets / "300").masks.items():
        assert torch.equal(mask, by_labels.masks[name])  # the first search is the same, whoever is chosen after it
        assert not torch.equal(mask, taught.masks[name])
    ways = {path.parent.name for path in (run.folder / "retrained" / "300").rglob("history.jsonl")}
    assert ways == {"soft-labels-1-in-search" if teacher["search_share"] else "soft-labels-1"}
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("history.jsonl")}
    again = prune(config, out=run.folder, resume=True)
    assert again.frontier.points == result.frontier.points
    assert before == {path: path.stat().st_mtime_ns for path in run.folder.rglob("history.jsonl")}


def test_models_come_from_the_search_that_was_chosen(tmp_path, monkeypatch):
    """The dense model does not help here, so it is made to seem so."""
    better = count()

    def try_rising(ways, validation_auc):
        return choose_plan(ways, lambda way: next(better) * validation_auc(way))

    monkeypatch.setattr("thresher.experiment.workflow.choose_plan", try_rising)
    chosen = prune(CONFIG, out=tmp_path / "chosen")
    told = prune(replace(TAUGHT, num_teachers=1), out=tmp_path / "told")
    assert chosen.run.tickets.relative_to(tmp_path / "chosen") == told.run.tickets.relative_to(tmp_path / "told")
    assert [point.test_auc for point in chosen.frontier.points] == [point.test_auc for point in told.frontier.points]
    for point in told.frontier.points:
        bundles = [load_bundle(result.run.bundle(point.budget)) for result in (chosen, told)]
        tables = [bundle.model.state_dict() for bundle in bundles]
        assert all(torch.equal(value, tables[1][name]) for name, value in tables[0].items())
    tickets = json.loads((told.run.tickets / "tickets.json").read_text())["tickets"]
    assert all(_equal_masks(told.run.tickets / slug, chosen.run.tickets / slug) for slug in tickets)
    assert not (tmp_path / "told" / "tickets" / "300").exists()  # there is no other search


def test_a_failed_search_on_soft_labels_keeps_the_first_search(tmp_path, monkeypatch):
    def find(*arguments, soft_labels=None, **options):
        if soft_labels is not None:
            raise BudgetError("it stalls")
        return find_tickets(*arguments, **options)

    monkeypatch.setattr("thresher.experiment.stages.find_tickets", find)
    result = prune(replace(CONFIG, teacher_share=1.0), out=tmp_path / "run")
    teacher = result.frontier.metadata["distillation"]
    assert (teacher["share"], teacher["search_share"]) == (1.0, 0.0)
    assert teacher["failed"] == "soft-labels-1-in-search: it stalls"
    assert len(result.frontier.points) == 3


def test_a_method_without_a_search_has_no_plan_with_distillation_in_search(tmp_path):
    config = replace(CONFIG, embedding=MdeConfig(embedding_dim=8), budgets=("50%",))
    assert [str(way) for way in config.candidate_plans()] == ["hard-labels", "soft-labels-1"]


@pytest.mark.parametrize(
    ("share", "distill_search", "search", "way"),
    [
        (0.0, None, "tickets", "hard-labels"),
        (0.5, True, "tickets/soft-labels-0.5", "soft-labels-0.5-in-search"),
        (0.5, False, "tickets", "soft-labels-0.5"),
    ],
)
def test_a_given_teacher_share_is_not_compared_with_others(tmp_path, share, distill_search, search, way):
    config = replace(CONFIG, budgets=("300", "200"), teacher_share=share, distill_search=distill_search)
    result = prune(config, out=tmp_path / "told")
    assert result.run.soft_labels.exists() == (share > 0)
    assert not result.run.choice.exists()
    ways = {path.parent.name for path in (tmp_path / "told" / "retrained").rglob("history.jsonl")}
    assert ways == {way}
    searches = [path.parent for path in (tmp_path / "told" / "tickets").rglob("history.jsonl")]
    assert searches == [tmp_path / "told" / search] == [result.run.tickets]


def test_trainings_ended_by_max_epochs_are_reported(tmp_path):
    short = replace(CONFIG, budgets=("300",), training=replace(CONFIG.training, max_epochs=1), teacher_share=0.0)
    assert prune(short, out=tmp_path / "short").frontier.metadata["still_improving"] == ["dense", "300"]
    patient = replace(short, training=replace(CONFIG.training, max_epochs=60))
    assert prune(patient, out=tmp_path / "patient").frontier.metadata["still_improving"] == []


def test_a_retraining_has_its_own_limit_which_may_be_a_part_of_an_epoch(tmp_path):
    config = replace(CONFIG, budgets=("300",), training=replace(CONFIG.training, max_epochs=60), teacher_share=0.0)
    config = replace(config, effort="standard", retraining=RetrainingConfig(max_epochs=0.25))
    metadata = prune(config, out=tmp_path / "run").frontier.metadata
    assert metadata["still_improving"] == ["300"]
    epochs = {stage["stage"]: stage["epochs"] for stage in metadata["cost"]["stages"]}
    assert epochs["retrain 300"] == pytest.approx(0.25, abs=0.05)
    assert "0.2" in cost_table(metadata["cost"])


def test_results_hold_what_a_script_needs(pruned):
    results = json.loads(pruned.run.results.read_text())
    wanted = {"num_parameters", "storage_bytes", "validation_auc", "validation_logloss", "test_auc", "test_logloss"}
    assert wanted <= set(results["dense"])
    assert all(wanted | {"budget"} <= set(point) for point in results["points"])
    assert [point["budget"] for point in results["points"]] == ["300", "1KB", "5%"]  # as the search came to them
    written = files_of(pruned.run.folder)
    assert {"config.toml", "results.json", "report/frontier.png", "tickets/300/ticket.json"} <= written
    assert not [name for name in written if "partial" in name or name.endswith("checkpoint.safetensors")]


def test_the_bundle_predicts_what_the_trained_model_did(pruned):
    source = build_source(CONFIG.data)
    frame = source.frame()
    predictor = load_bundle(pruned.run.folder / "bundles" / "300")
    probabilities = predictor.predict(frame)
    labels = frame["label"].cast(int).to_numpy()
    assert probabilities.shape == (8_000,)
    assert np.corrcoef(probabilities, labels)[0, 1] > 0.2
    row = frame.row(0, named=True)
    assert predictor.predict(row) == pytest.approx(float(probabilities[0]), abs=1e-6)
    unseen = dict.fromkeys(row, "never seen")
    assert 0 < predictor.predict(unseen) < 1


def test_first_order_weights_can_be_pruned_and_counted_too(tmp_path):
    config = replace(CONFIG, embedding=PepConfig(embedding_dim=8, first_order=True), budgets=("100",))
    result = prune(config, out=tmp_path / "run")
    (point,) = result.frontier.points
    assert point.num_parameters == 100
    kept = {name: int(mask.sum()) for name, mask in _masks(result.run.tickets / "100").items()}
    assert set(kept) == {"embedding", "linear_term.weights"}
    assert sum(kept.values()) == 100
    assert min(kept.values()) > 0
    predictor = load_bundle(result.run.bundle("100"))
    assert predictor.bundle.num_parameters == 100
    assert predictor.bundle.searched_bytes == predictor.bundle.storage_bytes == point.storage_bytes
    probabilities = predictor.predict(build_source(config.data).frame())
    assert probabilities.std() > 0.02


def test_a_runs_folders_are_found_however_a_budget_is_written(tmp_path):
    run = Run(tmp_path, RunConfig(budgets=("30k", "2%", "1MB")))
    assert run.bundle("30000") == run.bundle(30_000) == run.bundle("30k") == tmp_path / "bundles" / "30k"
    assert run.retrained("2.0%") == tmp_path / "retrained" / "2pct"
    assert run.retrained("1000KB") == tmp_path / "retrained" / "1MB"
    assert run.bundle("7000") == tmp_path / "bundles" / "7000"  # none of the run's


def test_a_model_of_first_order_weights_alone_can_have_them_pruned(tmp_path):
    model = LogisticRegressionConfig()
    with pytest.raises(ConfigError, match=r"'lr' has no embedding to prune. .* embedding\.first_order = true"):
        prune(replace(CONFIG, model=model), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    config = replace(CONFIG, model=model, embedding=PepConfig(first_order=True), budgets=("100",), teacher_share=0.0)
    (point,) = prune(config, out=tmp_path / "run").frontier.points
    assert point.num_parameters == 100
    assert point.test_auc > 0.6


def test_rewind_final_without_a_search_is_refused_before_training(tmp_path, pruned):
    config = replace(CONFIG, embedding=MdeConfig(embedding_dim=8), budgets=("50%",), rewind="final")
    with pytest.raises(ConfigError, match=r"continues from a search, and method 'mde' has none"):
        prune(config, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_is_neither_overwritten_nor_mixed(pruned):
    with pytest.raises(ConfigError, match=r"already holds a run\. Resume it, replace it"):
        prune(CONFIG, out=pruned.run.folder)
    with pytest.raises(ConfigError, match=r"other settings \(seed was \d, is 1\)"):
        prune(replace(CONFIG, seed=1), out=pruned.run.folder, resume=True)
    again = prune(CONFIG, out=pruned.run.folder, resume=True)
    assert again.frontier == pruned.frontier
    assert again.frontier.metadata["seconds"] > 0.1  # of the trainings, not of looking at what they left


def test_what_may_be_lost_instead_of_what_may_stay(tmp_path):
    config = replace(
        CONFIG,
        max_auc_drop=0.1,
        search=replace(CONFIG.search, warmup_epochs=1, plan_epochs=2),
        training=replace(CONFIG.training, max_epochs=3),
    )
    result = prune(config, out=tmp_path / "ladder")
    assert result.recommended is not None
    floor = result.frontier.dense.validation_auc - 0.1
    assert result.recommended.validation_auc >= floor
    smaller = [p for p in result.frontier.points if p.num_parameters < result.recommended.num_parameters]
    assert all(point.validation_auc < floor for point in smaller)
    assert json.loads((tmp_path / "ladder" / "results.json").read_text())["recommended"] == result.recommended.budget
    sentence = f"Smallest size within 0.1 of the dense model&#x27;s validation AUC: {result.recommended.budget}"
    assert html.unescape(sentence) in str(result)
    assert sentence in result._repr_html_()


def test_the_ladder_leaves_out_sizes_a_method_does_not_have(tmp_path):
    config = replace(
        CONFIG,
        max_auc_drop=0.1,
        embedding=UniformConfig(embedding_dim=8),
        training=replace(CONFIG.training, max_epochs=2),
    )
    result = prune(config, out=tmp_path / "run")
    assert [point.budget for point in result.frontier.points] == ["20%"]  # a width of 1 is 12.5 % of a width of 8


def test_unreachable_budgets_are_refused_before_training(tmp_path):
    decay = replace(CONFIG, embedding=PepConfig(embedding_dim=8, pressure="decay"))
    with pytest.raises(ConfigError, match=r"threshold_decay.*is 0"):
        prune(decay, out=tmp_path / "a")
    with pytest.raises(BudgetError, match="above the"):
        prune(replace(CONFIG, budgets=("1M",)), out=tmp_path / "b")
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["encoded"]


def test_a_refused_run_leaves_its_table_to_the_next(tmp_path, pruned):
    with pytest.raises(BudgetError, match="above the"):
        prune(replace(CONFIG, budgets=("1M",)), out=tmp_path)
    encoded = {path: path.stat().st_mtime_ns for path in (tmp_path / "encoded").rglob("*")}
    other = replace(CONFIG, data=replace(CONFIG.data, split_seed=1))
    with pytest.raises(DataError, match=r"encoded from other data or settings: plan.split_seed was 0, is 1.*overwrite"):
        prune(other, out=tmp_path)
    assert prune(CONFIG, out=tmp_path).frontier.points == pruned.frontier.points
    assert encoded == {path: path.stat().st_mtime_ns for path in (tmp_path / "encoded").rglob("*")}


def _masks(folder):
    return load_ticket(folder).masks


def _equal_masks(left, right):
    return all(torch.equal(mask, _masks(right)[name]) for name, mask in _masks(left).items())


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from test_prune import CONFIG, TAUGHT, prune
prune(TAUGHT if sys.argv[3] == "taught" else CONFIG, out=sys.argv[2], resume=True)
"""


def run_until(out, reached, *, taught, timeout=120):
    """Run the path in a process of its own and kill it outright once `reached()` says so."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    here = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, here, str(out), "taught" if taught else ""], env=environment
    )
    deadline = time.monotonic() + timeout
    while reached is not None and not reached():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    if reached is None:
        assert process.wait(timeout) == 0
        return
    process.send_signal(signal.SIGKILL)
    process.wait()


def lines_of(path):
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.slow
@pytest.mark.parametrize("taught", [False, True])
def test_a_run_killed_in_search_and_in_retraining_ends_bit_for_bit_the_same(tmp_path, taught):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    searched, way = ("tickets/soft-labels-1", "soft-labels-1-in-search") if taught else ("tickets", "soft-labels-1")
    run_until(whole, None, taught=taught)
    if taught:
        run_until(killed, lambda: lines_of(killed / "dense/teacher-2/history.jsonl") >= 2, taught=taught)
        assert (killed / "dense/point.json").exists()
        assert not (killed / "dense/soft_labels.npy").exists()
    run_until(killed, lambda: lines_of(killed / searched / "history.jsonl") >= 3, taught=taught)
    assert not (killed / searched / "tickets.json").exists()
    histories = f"retrained/*/{way}/history.jsonl"
    run_until(killed, lambda: any(lines_of(path) >= 2 for path in killed.glob(histories)), taught=taught)
    assert not (killed / "results.json").exists()
    run_until(killed, None, taught=taught)

    one, other = (json.loads((run / "results.json").read_text()) for run in (whole, killed))
    for results in (one, other):  # times differ
        assert results.pop("seconds") == results["cost"]["total_seconds"]
        del results["checksum"]
        results["cost"] = [(stage["stage"], stage["epochs"]) for stage in results["cost"]["stages"]]
    assert one == other
    tensors = sorted(path.relative_to(whole) for path in whole.rglob("*.safetensors"))
    assert [path.relative_to(killed) for path in sorted(killed.rglob("*.safetensors"))] == tensors
    for path in tensors:
        left, right = load_file(whole / path), load_file(killed / path)
        assert left.keys() == right.keys()
        assert all(torch.equal(value, right[name]) for name, value in left.items()), path


def test_a_recommendation_within_the_noise_of_validation_has_a_warning():
    assert "not clearly above 0.5" in drop_doubts(0.01, 0.51, 100, 100)
    assert "below the standard error" in drop_doubts(0.001, 0.8, 100, 100)
    assert drop_doubts(0.1, 0.8, 100, 100) is None
    assert drop_doubts(0.001, 0.8, 100_000, 100_000) is None


@pytest.mark.parametrize("lost", [0.0, 0.1])
def test_there_are_no_doubts_without_a_recommendation(tmp_path, lost):
    run = Run.start(tmp_path / "run", replace(CONFIG, max_auc_drop=0.001))
    table = encode_data(CONFIG.data, run.encoded)
    dense = FrontierPoint(
        label="dense", num_parameters=100, storage_bytes=400, validation_auc=0.8, validation_logloss=0.5
    )
    point = replace(dense, label="pep", budget="5%", num_parameters=5, validation_auc=0.8 - lost)
    metadata = _with_recommendation(Frontier(points=(point,), dense=dense), run, table).metadata
    assert metadata["recommended"] == (None if lost else "5%")
    assert ("doubts" in metadata) == (lost == 0.0)


def test_a_resumed_ladder_leaves_out_the_sizes_that_cannot_be_met(tmp_path, monkeypatch):
    monkeypatch.setattr("thresher.training.distillation.MIN_GAIN", -1.0)  # try every plan
    monkeypatch.setattr("thresher.experiment.config.LADDER", ("20%", "0.001%"))
    config = replace(CONFIG, max_auc_drop=0.1)
    whole = prune(config, out=tmp_path / "whole")
    run = Run.start(tmp_path / "resumed", config)
    table = encode_data(config.data, run.encoded)
    RunWorkflow.of(run, table).search(config.candidate_plans()[0])
    resumed = prune(config, out=run.folder, resume=True)
    assert resumed.frontier.points == whole.frontier.points
    assert resumed.frontier.metadata["distillation"] == whole.frontier.metadata["distillation"]
    assert "failed" not in whole.frontier.metadata["distillation"]


def test_seeds_are_averaged_and_can_be_added_later(tmp_path, monkeypatch):
    monkeypatch.setattr("thresher.experiment.config.LADDER", ("20%",))
    config = replace(CONFIG, search=replace(CONFIG.search, warmup_epochs=1, plan_epochs=1))
    training = replace(CONFIG.training, max_epochs=1)
    config = replace(config, training=training, teacher_share=0.0, max_auc_drop=1e-6)
    alone = prune(config, out=tmp_path)
    alone_results = read_json(alone.run.results)
    result = prune(replace(config, seeds=3), out=tmp_path, resume=True)
    (point,) = result.frontier.points
    results = read_json(result.run.results)
    aucs = [seed["points"][0]["test_auc"] for seed in results["by_seed"]]
    assert aucs[0] == alone.frontier.points[0].test_auc
    assert len(set(aucs)) == 3
    assert point.test_auc == pytest.approx(np.mean(aucs))
    assert point.test_auc_sd == pytest.approx(np.std(aucs, ddof=1))
    assert results["seeds"] == [0, 1, 2]
    assert {len(results[name]) > 0 for name in ("dense", "floor")} == {True}
    assert results["recommended"] == (result.recommended.budget if result.recommended else None)
    if result.recommended:
        doubts = results["doubts"]
        assert f"{result.frontier.dense.validation_auc:.4f}" in doubts or "A drop of 1e-06" in doubts
    assert f"{np.mean(aucs):.4f} ± {np.std(aucs, ddof=1):.4f}" in str(result.frontier)
    assert "data:image/png;base64," in result._repr_html_()
    assert "<td>no embedding</td>" in result._repr_html_()
    stages = [
        {stage["stage"]: stage["epochs"] for stage in each["cost"]["stages"]} for each in (alone_results, results)
    ]
    assert stages[1]["dense"] > stages[0]["dense"]
    assert "means of 3 seeds" in result.run.report.joinpath("index.html").read_text(encoding="utf-8")
    assert results["doubts"] in str(result)
    begun = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("history.jsonl")}
    again = prune(replace(config, seeds=3), out=tmp_path, resume=True)
    assert again.frontier.points == result.frontier.points
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("history.jsonl")} == begun
