"""Sections of the page: tables, verdicts and figures made from example results."""

import hashlib
from dataclasses import replace

import pytest
from example_results import point, pruned

from paper import experiments, method_comparison
from paper.five_budgets import SPACES, shared_searches
from paper.parts import (
    ablation,
    data_statistics,
    distillation,
    frontier,
    frontier_small,
    granularity,
    headline,
    methods_table,
    pep0_and_lr,
    runtime,
)
from thresher._internal.storage.files import read_json, write_json


def test_the_dense_row_of_the_table_of_methods_names_both_models(settings, results):
    text = methods_table.page(settings)
    assert "| dense (paper: AutoInt; here: FM) | ✓ ✗ ✓ | ✓ ✗ ✓ | 0.8490 (1) | 265,000 | 1.0× |" in text


def test_the_figure_of_pep_0_shows_differences_from_lr_here_and_in_the_paper(settings, results):
    (svg,) = (path.read_text() for path in pep0_and_lr.draw(settings) if path.suffix == ".svg")
    for words in ("PEP-0 minus LR, Thresher (one seed)", "PEP-0 minus LR, paper", "Criteo (small)"):
        assert words in svg
    assert pep0_and_lr._gains(settings, "criteo")["fm"] == pytest.approx([0.003])  # 0.763 against 0.76
    assert "The AUC of LR on MovieLens-1M is 0.7717 in the paper and 0.7600 here." in pep0_and_lr.page(settings)


def test_further_methods_have_a_second_figure_with_pep(settings, results):
    path = results / "frontier/fm.json"
    content = read_json(path)
    content["points"].append(point(0.83, label="hash", budget="20k", size=20_000, model="fm"))
    write_json(path, content)
    drawn = {path.stem: path.read_text() for path in frontier.draw(settings) if path.suffix == ".svg"}
    assert list(drawn) == ["frontier-fm", "frontier-fm-further"]
    first, further = ({label for label in ("pep", "mde", "hash") if f">{label}<" in svg} for svg in drawn.values())
    assert (first, further) == ({"pep", "mde"}, {"pep", "hash"})
    assert all("MovieLens-1M, FM" in svg for svg in drawn.values())
    text = frontier.page(settings)
    assert text.index("(images/frontier-fm.png)") < text.index("(images/frontier-fm-further.png)")


def test_the_page_lists_where_pep_is_not_better_and_by_how_much(settings, results):
    lines = frontier.page(settings).splitlines()
    assert (
        "At equal budgets `pep` is better by at least 0.001 in 0 of 2 comparisons with one or two seeds (not better: "
        "magnitude at 20k (-0.0009 ± 0.0001 (2)), gradual-magnitude at 20k (-0.0030 (1)))."
    ) in lines
    assert not [line for line in lines if line.startswith("| mde | 9,000")]  # PEP has no smaller table


def test_the_small_files_are_compared_like_movielens(settings, results):
    text = frontier_small.page(settings)
    assert "| uniform | – | – | +0.0040 ± 0.0000 (2) | – | – | – |" in text  # only at the third of six budgets
    assert "| mde | 5,000 | 0.7655 ± 0.0007 (2) | 4k | +0.0000 ± 0.0000 (2) |" in text
    assert "Budgets that are out of reach: mde 4k." in text
    (claim,) = frontier_small.claims(settings)
    assert claim.holds == "in part"  # better than the uniform table, no difference from MDE


def test_five_budgets_use_only_complete_seeds(settings, results):
    path = results / "runtime/five_budgets.json"
    drawn, before, complete = runtime.draw(settings), runtime.page(settings), runtime.claims(settings)
    content = read_json(path)
    slow = content["pep"]["0"]["all"] | {"search_seconds": 5000.0}
    write_json(path, content | {"pep": {**content["pep"], "1": {"all": slow}}})
    assert runtime.page(settings) == before
    partial = dict.fromkeys(list(SPACES)[:2], slow)
    write_json(path, content | {"pep": {"0": {"all": slow}}, "darts": {"0": partial}})
    assert "One search for all budgets" not in runtime.page(settings)
    assert (len(runtime.claims(settings)), len(complete)) == (1, 2)
    assert drawn
    assert not runtime.draw(settings)


def test_the_headline_has_paired_differences_and_trainings_that_were_still_improving(settings, results):
    path = results / "experiments/movielens-1m/fm/pep-plan.json"
    content = read_json(path)
    content["seeds"]["0"]["still_improving"] = ["20k"]
    write_json(path, content)
    text = headline.page(settings)
    row = next(line for line in text.splitlines() if line.startswith("| FM, PEP at 20k | – | 0.8479 | – |"))
    assert row.endswith("| 0.8510 ± 0.0014 (2) | +0.0010 ± 0.0014 (2) | – | – |")
    assert "| FM, PEP at 30k | – | – | 0.8490 (1) | – | – | – |" in text
    assert (
        "still improving at their last epoch: fm/pep-plan at 20k, seed 0. (Not recorded for fm/pep-plan seed 1" in text
    )
    assert "an AUC due to the test rows is 0.1" in text  # ten test rows


def test_the_deviation_is_better_or_worse_only_if_seeds_agree(settings):
    folder = settings.results / "experiments"
    learned = {"50k": [0.852, 0.854, 0.853], "12k": [0.846, 0.847, 0.845], "6500": [0.8430, 0.8441, 0.8450]}
    fixed = {"50k": [0.850, 0.852, 0.851], "12k": [0.8462, 0.8468, 0.845], "6500": [0.8433, 0.8444, 0.8454]}
    pruned(folder / ablation.LEARNED, learned)
    pruned(folder / ablation.FIXED, fixed)
    text = ablation.page(settings)
    assert "| 50k | 0.8530 ± 0.0010 (3) | 0.8510 ± 0.0010 (3) | +0.0020 ± 0.0000 (3) |" in text
    assert "Learning the deviation is better at 50k and worse at 6500." in text


def test_distillation_is_paired_over_the_seeds_that_tried_it(settings):
    tried = [
        {"share": 1.0, "validation_auc": {"by-labels": 0.84, "taught-1": 0.842, "searched-taught-1": 0.845}},
        {"share": 0.0, "validation_auc": {"by-labels": 0.85, "taught-1": 0.848}},
        {"share": 1.0},  # fixed by the settings
    ]
    path = settings.results / "experiments/movielens-1m/fm/pep-plan.json"
    write_json(path, {"seeds": {str(seed): {"teacher": trial} for seed, trial in enumerate(tried)}, "made_with": []})
    cells = "0.8450 ± 0.0071 (2) | 0.8450 (+0.0000 ± 0.0028 (2)) | 0.8450 (+0.0050 (1)) | 1 |"
    assert f"| MovieLens-1M, FM | {cells}" in distillation.page(settings)


def test_several_teachers_are_compared_with_one_and_with_the_dense_model(settings):
    folder = settings.results / "experiments"
    pruned(folder / "movielens-1m/fm/pep-plan", {"50k": [0.850, 0.851, 0.852], "6541": [0.848, 0.849, 0.848]})
    content = read_json(folder / "movielens-1m/fm/pep-plan.json")
    content["seeds"]["0"]["teacher"] = {"share": 1.0, "validation_auc": {"by-labels": 0.84, "taught-1": 0.842}}
    write_json(folder / "movielens-1m/fm/pep-plan.json", content)
    of = experiments.teacher_experiment
    pruned(folder / of("fm", "three-teachers"), {"50k": [0.852, 0.853, 0.854], "6541": [0.848, 0.848, 0.849]})
    pruned(folder / of("fm", "mixed-teachers"), {"6541": [0.846, 0.847, 0.846]})
    text = distillation.page(settings)
    assert "| FM, 50k | 0.8530 ± 0.0010 (3) | 0.8510 ± 0.0010 (3) | +0.0020 ± 0.0000 (3) |" in text
    assert "For FM the mean of three teachers is better at 50k and worse at no size." in text
    assert "For FM the mean of mixed teachers is better at no size and worse at 6541." in text
    seeds = {
        str(seed): {"by_labels": {"test_auc": 0.84}, "taught": {"test_auc": auc}}
        for seed, auc in ((0, 0.845), (2, 0.846))
    }
    write_json(settings.results / "teacher/taught-dense-fm.json", {"seeds": seeds})
    text = " ".join(distillation.page(settings).split())
    assert "has test AUC 0.8455 ± 0.0007 (2), +0.0055 ± 0.0007 (2) against hard labels." in text
    assert "the effect of pruning alone: 6541 +0.0005 ± 0.0007 (2)." in text
    text = headline.page(settings)
    assert "distilled (search and retraining) +0.0010 ± 0.0010 (3); three teachers +0.0030" in text
    assert "| 0.8483 ± 0.0006 (3) | -0.0017 ± 0.0006 (3) | 0.8463 ± 0.0006 (3) | -0.0037 ± 0.0006 (3) |" in text
    (claim,) = headline.claims(settings)
    assert claim.statement.startswith("*Not in the paper:* with distillation,")
    assert claim.holds == "no"  # 50k is better than the dense model, but more than a few per cent


def test_budgets_with_the_same_candidates_share_a_search(settings, results):
    one = {"search_seconds": 10.0, "search_epochs": 5, "retrain_seconds": 1.0}
    run = dict.fromkeys(reversed(SPACES), one)  # independent of the order
    shared = dict(zip(SPACES, shared_searches(run), strict=True))
    assert [budget for budget, found in shared.items() if found["search_seconds"] == 0] == ["50k", "20k"]
    assert all(found["retrain_seconds"] == 1 for found in shared.values())


def test_granularities_are_compared_with_the_papers_best_by_seed():
    def content(aucs):
        return {"seeds": {seed: {"points": [{"budget": "12k", "test": {"auc": auc}}]} for seed, auc in aucs.items()}}

    contents = {
        "global": content({"1": 0.848, "0": 0.846}),
        "feature": content({"0": 0.830, "2": 0.900}),  # seed 2 has no counterpart
        "feature-dimension": content({"0": 0.844, "1": 0.846}),
    }
    text = granularity._conclusion(contents, [12_000])
    assert text.endswith("from those not named) at 12,000: better than feature, worse than global.")


def test_data_statistics_contain_no_values_of_the_data(settings, monkeypatch):
    statistics = data_statistics
    monkeypatch.setattr(statistics, "DATASET_NAMES", {"movielens-1m": "MovieLens-1M"})
    statistics.run(settings)
    content = read_json(settings.results / "data_statistics" / "movielens-1m.json")
    assert content["num_features"] > 0
    assert {key for field in content["fields"] for key in field} == {"name", "num_features", "unknown_share"}
    assert content["files"] == []  # synthetic rows


def test_the_page_lists_raw_files_with_rows_and_checksum(settings, results, tmp_path):
    statistics, path = data_statistics, settings.results / "data_statistics" / "avazu.json"
    assert "SHA-256" not in statistics.page(settings)  # the result has no files
    content = b"id,click\n1,0\n2,1\n"
    (tmp_path / "avazu").mkdir()
    (tmp_path / "avazu" / "train.csv").write_bytes(content)
    files = statistics.file_metadata(replace(settings, quick=False, data_dir=tmp_path), "avazu")
    write_json(path, read_json(path) | {"files": files})
    checksum = hashlib.sha256(content).hexdigest()
    assert f"| `avazu/train.csv` | 2 | `{checksum}` |" in statistics.page(settings)


def test_the_page_lists_trainings_that_reached_the_last_epoch():
    counted = [("pep", 60), ("pep", 59), ("mde", 12), ("nis", 60)]
    points = [{"label": label, "model": "fm", "retrain_epochs": epochs} for label, epochs in counted]
    unknown, floor = {"label": "hash", "model": "fm"}, {"label": "lr", "model": "lr", "retrain_epochs": 60}
    content = {"config": {"training": {"max_epochs": 60}}, "points": [unknown, floor, *points]}
    reached = "2 reached the last epoch, 60: `pep` 1 of 2, `nis` 1 of 1. The others stopped early."
    stopped_at_last_epoch = method_comparison.stopped_at_last_epoch
    assert (
        stopped_at_last_epoch(content)
        == "The number of epochs is recorded for 4 of 5 trainings (none of `hash`). " + reached
    )
    assert stopped_at_last_epoch(content | {"points": points}) == reached
    assert (
        stopped_at_last_epoch(content | {"points": points[1:3]})
        == "All of the trainings stopped early, before epoch 60."
    )
    assert not stopped_at_last_epoch(content | {"points": [unknown, floor]})
