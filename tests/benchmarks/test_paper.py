"""The paper's page and figures: made from result files alone, honest about what is missing and where PEP is behind."""

import hashlib
import re
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from thresher.config import load_toml
from thresher.data.sources import DataConfig, SyntheticConfig
from thresher.embeddings.pep import PepConfig
from thresher.errors import ConfigError
from thresher.files import read_json, write_json
from thresher.report.frontier import FrontierPoint
from thresher.runs import RunConfig
from thresher.tickets.budget import Budget

ROOT = Path(__file__).parent.parent.parent
EXPERIMENTS = ROOT / "benchmarks" / "experiments"
MADE_WITH = [{"commit": "abc1234", "changed_tree": False, "machine": {"cores": 2, "threads": 1}}]
MINE = ("frontier", "frontier_small", "criteo_small", "pep0_and_lr", "runtime", "data_statistics", "methods_table")


def paper(name):
    return import_module(f"paper.{name}")


def part(name):
    return paper("make").part(name)


def point(auc, *, label="pep", budget=None, size=1000, seed=0, **more):
    made = FrontierPoint(
        label=label, budget=budget, num_parameters=size, storage_bytes=5 * size, validation_auc=auc,
        validation_logloss=0.4, test_auc=auc, test_logloss=0.4, seed=seed,
    )  # fmt: skip
    return made.to_json() | more


def pruned(path, aucs, *, dense=0.85):
    """A result of `benchmarks/run.py`: budget → test AUC of each seed."""
    seeds = range(len(next(iter(aucs.values()))))
    content = {
        str(seed): {
            "format_version": 1,
            "dense": point(dense, label="dense", size=100_000, seed=seed),
            "points": [
                point(of_seeds[seed], budget=budget, size=int(Budget.parse(budget).amount), seed=seed)
                for budget, of_seeds in aucs.items()
            ],
        }
        for seed in seeds
    }
    write_json(path.with_suffix(".json"), {"experiment": path.name, "config": {}, "seeds": content})


@pytest.fixture
def results(settings):
    """A few numbers for every part of ours."""
    folder = settings.results
    pruned(folder / "experiments/movielens-1m/fm/pep-plan", {"20k": [0.850, 0.852], "6541": [0.840, 0.841]})
    pruned(folder / "experiments/movielens-1m/fm/pep-decay", {"30k": [0.849]})
    compared = [
        point(0.849, label="uniform", size=265_000, model="fm", search_seconds=0.0, retrain_seconds=30.0),
        *(
            point(
                auc,
                label=label,
                budget="20k",
                size=size,
                seed=seed,
                model="fm",
                search_seconds=60.0,
                retrain_seconds=2.0,
            )
            for label, size, aucs in (
                ("pep", 20_000, (0.850, 0.852)),
                ("magnitude", 20_000, (0.851, 0.8528)),
                ("gradual-magnitude", 20_000, (0.853,)),
                ("mde", 9_000, (0.830, 0.832)),
            )
            for seed, auc in enumerate(aucs)
        ),
        point(0.79, label="lr", size=0, model="lr", search_seconds=0.0, retrain_seconds=5.0),
    ]
    write_json(
        folder / "frontier/fm.json",
        {
            "config": {"training": {"max_epochs": 60}},
            "done": {},
            "points": compared,
            "unmet": {"mgqe 6541": "why"},
            "made_with": MADE_WITH,
        },
    )
    small = [
        point(auc, label=label, budget=budget, size=size, seed=seed, model="fm")
        for label, budget, size, aucs in (
            ("pep", "40k", 40_000, (0.767, 0.768)),
            ("pep", "4k", 4_000, (0.765, 0.766)),
            ("uniform", "40k", 39_000, (0.763, 0.764)),
            ("mde", "40k", 5_000, (0.765, 0.766)),
        )
        for seed, auc in enumerate(aucs)
    ]
    small.append(point(0.764, label="lr", size=0, model="lr"))
    write_json(
        folder / "frontier_small/criteo-fm.json",
        {"config": {}, "done": {}, "points": small, "unmet": {"mde 4k": "why"}, "made_with": MADE_WITH},
    )
    for source in ("movielens-1m", "criteo", "avazu"):
        write_json(folder / f"lr/{source}.json", {"points": {"0": point(0.76, label="dense", size=0)}})
        write_json(
            folder / f"data_statistics/{source}.json",
            {
                "num_rows": {"train": 80, "validation": 10, "test": 10},
                "positive_share": {"train": 0.25, "test": 0.25},
                "num_features": 44,
                "fields": [{"name": "a"}, {"name": "b"}],
                "frequency_curve": [[1, 50], [10, 5], [44, 1]],
                "made_with": MADE_WITH,
            },
        )
    for model in ("fm", "deepfm"):
        pruned(folder / f"experiments/criteo-small/{model}/pep-plan", {"16k": [0.768], "1067": [0.763]})
        for width in (4, 64):
            path = folder / f"criteo_small/{model}-dense-{width}.json"
            write_json(path, {"points": {"0": point(0.764 - width / 1e4, label="dense", size=1000 * width)}})
    sides = {
        f"{model}, {side}": {"milliseconds": 1.0, "epoch_seconds": seconds}
        for model in ("fm", "deepfm", "autoint")
        for side, seconds in (
            ("base_dense", 100.0), ("darts_dense", 210.0), ("pep_published", 2500.0), ("base_rows", 20.0),
            ("pep_rows", 25.0),
        )
    }  # fmt: skip
    shape = {
        "num_features": 10,
        "embedding_dim": 4,
        "num_fields": 2,
        "batch_size": 8,
        "steps_per_epoch": 5,
        "threads": 1,
        "candidate_sizes": [1, 4],
    }
    write_json(folder / "runtime/steps.json", {"settings": shape, "machine": {"cpu": "a cpu"}, "sides": sides})
    one = {"search_seconds": 50.0, "search_epochs": 30, "retrain_seconds": 100.0, "retrain_epochs": 60}
    budgets = part("runtime").SPACES
    write_json(
        folder / "runtime/five_budgets.json",
        {
            "config": {"search": {"max_epochs": 60}, "training": {"max_epochs": 60}},
            "pep": {"0": {"all": one | {"points": [point(0.85, budget=budget) for budget in budgets]}}},
            "darts": {"0": {budget: one | {"points": [point(0.84, budget=budget)]} for budget in budgets}},
            "made_with": MADE_WITH,
        },
    )
    return folder


def test_every_part_keeps_the_contract():
    for name in paper("make").PARTS:
        module = part(name)
        assert isinstance(module.TITLE, str)
        assert isinstance(module.PUBLISHED, str)
        assert all(callable(getattr(module, word)) for word in ("run", "draw", "page")), name


def test_without_results_nothing_is_drawn_and_the_page_says_how_to_run_each_part(settings):
    parts = {name: part(name) for name in paper("make").PARTS}
    assert [path for module in parts.values() for path in module.draw(settings)] == []
    text = paper("whole_page").write_page(settings, parts).read_text()
    for name, module in parts.items():
        assert module.TITLE in text
        assert f"make.py --only {name}`" in text


def test_figures_and_page_come_from_result_files_alone(settings, results):
    parts = {name: part(name) for name in MINE}
    drawn = [path for module in parts.values() for path in module.draw(settings)]
    names = {path.name for path in drawn}
    assert all(path.stat().st_size > 1000 for path in drawn)
    assert {
        f"{name}.png" for name in ("frontier-fm", "criteo-small-fm", "pep0-and-lr", "runtime", "data-statistics")
    } <= names
    text = paper("whole_page").write_page(settings, parts).read_text()
    for path in drawn:  # none is drawn in vain
        assert path.suffix != ".png" or f"(images/{path.name})" in text
    assert "25.00×" in text  # the authors' step over the dense base
    assert "5 of its retrainings at theirs, the 60th" in text
    assert "100 (1)" in text


def test_methods_beyond_the_papers_have_a_figure_of_their_own_beside_pep(settings, results):
    path = results / "frontier/fm.json"
    content = read_json(path)
    content["points"].append(point(0.83, label="hash", budget="20k", size=20_000, model="fm"))
    write_json(path, content)
    frontier = part("frontier")
    drawn = {path.stem: path.read_text() for path in frontier.draw(settings) if path.suffix == ".svg"}
    assert list(drawn) == ["frontier-fm", "frontier-fm-further"]
    first, further = ({label for label in ("pep", "mde", "hash") if f">{label}<" in svg} for svg in drawn.values())
    assert (first, further) == ({"pep", "mde"}, {"pep", "hash"})
    assert all("MovieLens-1M, FM" in svg for svg in drawn.values())
    text = frontier.page(settings)
    assert text.index("(images/frontier-fm.png)") < text.index("(images/frontier-fm-further.png)")


def test_the_table_of_methods_names_whose_numbers_its_dense_row_has(settings, results):
    text = part("methods_table").page(settings)
    assert "| dense (paper: AutoInt; here: FM) | ✓ ✗ ✓ | ✓ ✗ ✓ | 0.8490 (1) | 265,000 | 1.0× |" in text


def test_the_figure_of_pep_0_has_its_gains_over_lr_beside_the_papers(settings, results):
    (svg,) = (path.read_text() for path in part("pep0_and_lr").draw(settings) if path.suffix == ".svg")
    for words in ("PEP-0, smallest tickets, one seed", "PEP-0 in the paper, against its LR", "Criteo (small)"):
        assert words in svg
    assert part("pep0_and_lr")._gains(settings, "criteo")["fm"] == pytest.approx([0.003])  # 0.763 against 0.76
    assert "LR itself is, on MovieLens-1M, 0.7717 there and 0.7600 here." in part("pep0_and_lr").page(settings)


def test_the_page_says_which_trainings_the_last_epoch_cut_off():
    counted = [("pep", 60), ("pep", 59), ("mde", 12), ("nis", 60)]
    points = [{"label": label, "model": "fm", "retrain_epochs": epochs} for label, epochs in counted]
    unknown, floor = {"label": "hash", "model": "fm"}, {"label": "lr", "model": "lr", "retrain_epochs": 60}
    content = {"config": {"training": {"max_epochs": 60}}, "points": [unknown, floor, *points]}
    told = "2 went on to the last, the 60th: `pep` 1 of 2, `nis` 1 of 1; patience ended the others."
    cut_off = paper("compared").cut_off
    assert cut_off(content) == "Epochs were counted of 4 of the 5 trainings (of none of `hash`). " + told
    assert cut_off(content | {"points": points}) == told
    assert cut_off(content | {"points": points[1:3]}) == "Patience ended all of the trainings, before the 60th epoch."
    assert not cut_off(content | {"points": [unknown, floor]})


def test_where_pep_is_not_ahead_the_page_says_so_and_by_how_much(settings, results):
    lines = part("frontier").page(settings).splitlines()
    assert (
        "`pep` is with one or two seeds higher by 0.001 or more in 0 of 2 (not: magnitude at 20k "
        "(-0.0009 ± 0.0001 (2)), gradual-magnitude at 20k (-0.0030 (1)))."
    ) in lines
    assert not [line for line in lines if line.startswith("| mde | 9,000")]  # there is no smaller table of PEP


def test_the_small_files_are_compared_as_the_large_one_is(settings, results):
    text = part("frontier_small").page(settings)
    assert "| uniform | – | – | +0.0040 ± 0.0000 (2) | – | – | – |" in text  # of six budgets at the third alone
    assert "| mde | 5,000 | 0.7655 ± 0.0007 (2) | 4k | +0.0000 ± 0.0000 (2) |" in text
    assert "Out of reach: mde 4k." in text
    (claim,) = part("frontier_small").claims(settings)
    assert claim.holds == "in part"  # ahead of the uniform table, level with MDE


def test_the_page_begins_with_what_holds_of_the_paper_and_links_to_where_it_is_shown(settings, results):
    parts = {name: part(name) for name in paper("make").PARTS}
    text = paper("whole_page").page_text(settings, parts)
    told = text[text.index("## What holds") : text.index("## What differs")]
    anchors = {paper("whole_page")._anchor(line[3:]) for line in text.splitlines() if line.startswith("## ")}
    linked = re.findall(r"\]\(#([a-z0-9-]+)\)", told)
    assert len(linked) >= 4
    assert set(linked) <= anchors
    assert (
        "| yes | FM on MovieLens-1M, searching for five sizes: 50 s by one search; DartsEmb 250 s by one for each "
        "size, 150 s by one for each set of candidates |"
    ) in told
    assert "| in part | At Criteo's shape under FM, DeepFM, AutoInt, both sides with row updates: 1.25×" in told
    assert "## The lottery ticket\n\nIn the paper: Figure 8;" in text


def test_five_budgets_are_told_of_the_seeds_that_have_all_of_them(settings, results):
    """While a further seed is on its way the page is that of the seeds before it."""
    runtime, path = part("runtime"), results / "runtime/five_budgets.json"
    drawn, before, said = runtime.draw(settings), runtime.page(settings), runtime.claims(settings)
    content = read_json(path)
    slow = content["pep"]["0"]["all"] | {"search_seconds": 5000.0}
    write_json(path, content | {"pep": {**content["pep"], "1": {"all": slow}}})
    assert runtime.page(settings) == before
    partial = dict.fromkeys(list(runtime.SPACES)[:2], slow)
    write_json(path, content | {"pep": {"0": {"all": slow}}, "darts": {"0": partial}})
    assert "One search for all budgets" not in runtime.page(settings)
    assert (len(runtime.claims(settings)), len(said)) == (1, 2)
    assert drawn
    assert not runtime.draw(settings)


def test_validation_has_to_agree_that_a_method_is_ahead_unless_one_learned_from_it():
    def points(label, test, validation):
        return [
            FrontierPoint.from_json(point(test + at / 1e5, label=label, seed=at) | {"validation_auc": validation})
            for at in range(3)
        ]

    above, pep = paper("verdicts").is_above, points("pep", 0.85, 0.849)
    assert above(pep, points("mde", 0.84, 0.848))
    assert not above(pep, points("mde", 0.84, 0.850))  # test and validation say the opposite: no finding
    assert not above(points("mde", 0.84, 0.850), pep)
    assert above(pep, points("darts-emb", 0.84, 0.850))  # its sizes learned on the validation rows


def test_what_cannot_use_its_budget_is_compared_with_a_table_that_is_no_larger():
    points = [
        FrontierPoint.from_json(point(auc, label=label, budget=budget, size=size, seed=seed))
        for label, budget, size, aucs in (
            ("pep", "20k", 20_000, (0.85, 0.85, 0.85)),
            ("pep", "8k", 8_000, (0.84, 0.84, 0.84)),
            ("mde", "20k", 9_000, (0.835, 0.836, 0.835)),
            ("mde", "8k", 7_900, (0.845, 0.846, 0.845)),
            ("uniform", "8k", 4_000, (0.80, 0.80, 0.80)),
        )
        for seed, auc in enumerate(aucs)
    ]
    text = paper("verdicts").at_equal_budgets(points, "pep", ("20k", "8k"))
    assert "| mde | – | -0.0053 ± 0.0006 (3) |" in text
    assert "| mde | 9,000 | 0.8353 ± 0.0006 (3) | 8k | +0.0047 ± 0.0006 (3) |" in text
    assert "uniform" not in text  # half the size of the smallest
    assert "that is no larger is ahead in 1 of 1 comparisons; behind in none." in text
    assert "`pep` is ahead in 0 of 1 comparisons; behind mde at 8k (-0.0053 ± 0.0006 (3))." in text


def test_the_headline_pairs_with_dense_and_tells_what_was_cut_off(settings, results):
    path = results / "experiments/movielens-1m/fm/pep-plan.json"
    content = read_json(path)
    content["seeds"]["0"]["still_improving"] = ["20k"]
    write_json(path, content)
    text = part("headline").page(settings)
    row = next(line for line in text.splitlines() if line.startswith("| FM, PEP at 20k | – | 0.8479 | – |"))
    assert row.endswith("| 0.8510 ± 0.0014 (2) | +0.0010 ± 0.0014 (2) | – | – |")
    assert "| FM, PEP at 30k | – | – | 0.8490 (1) | – | – | – |" in text
    assert (
        "Still improving at their last epoch: fm/pep-plan at 20k, seed 0. (Not recorded for fm/pep-plan seed 1" in text
    )
    assert "an AUC that comes from its rows is 0.1" in text  # ten test rows


def test_the_deviation_gains_or_costs_only_where_seeds_agree(settings):
    folder = settings.results / "experiments"
    learned = {"50k": [0.852, 0.854, 0.853], "12k": [0.846, 0.847, 0.845], "6500": [0.8430, 0.8441, 0.8450]}
    fixed = {"50k": [0.850, 0.852, 0.851], "12k": [0.8462, 0.8468, 0.845], "6500": [0.8433, 0.8444, 0.8454]}
    pruned(folder / part("deviation").LEARNED, learned)
    pruned(folder / part("deviation").FIXED, fixed)
    text = part("deviation").page(settings)
    assert "| 50k | 0.8530 ± 0.0010 (3) | 0.8510 ± 0.0010 (3) | +0.0020 ± 0.0000 (3) |" in text
    assert "Learning it is ahead at 50k, behind at 6500." in text


def test_what_a_teacher_is_worth_is_paired_over_the_seeds_that_tried_it(settings):
    tried = [
        {"share": 1.0, "validation_auc": {"by-labels": 0.84, "taught-1": 0.842, "searched-taught-1": 0.845}},
        {"share": 0.0, "validation_auc": {"by-labels": 0.85, "taught-1": 0.848}},
        {"share": 1.0},  # told
    ]
    path = settings.results / "experiments/movielens-1m/fm/pep-plan.json"
    write_json(path, {"seeds": {str(seed): {"teacher": trial} for seed, trial in enumerate(tried)}, "made_with": []})
    cells = "0.8450 ± 0.0071 (2) | 0.8450 (+0.0000 ± 0.0028 (2)) | 0.8450 (+0.0050 (1)) | 1 |"
    assert f"| MovieLens-1M, FM | {cells}" in part("teacher").page(settings)


def test_more_teachers_are_paired_with_one_and_stand_beside_dense(settings):
    folder = settings.results / "experiments"
    pruned(folder / "movielens-1m/fm/pep-plan", {"50k": [0.850, 0.851, 0.852], "6541": [0.848, 0.849, 0.848]})
    content = read_json(folder / "movielens-1m/fm/pep-plan.json")
    content["seeds"]["0"]["teacher"] = {"share": 1.0, "validation_auc": {"by-labels": 0.84, "taught-1": 0.842}}
    write_json(folder / "movielens-1m/fm/pep-plan.json", content)
    of = paper("experiments").more_teachers
    pruned(folder / of("fm", "three-teachers"), {"50k": [0.852, 0.853, 0.854], "6541": [0.848, 0.848, 0.849]})
    pruned(folder / of("fm", "mixed-teachers"), {"6541": [0.846, 0.847, 0.846]})
    text = part("teacher").page(settings)
    assert "| FM, 50k | 0.8530 ± 0.0010 (3) | 0.8510 ± 0.0010 (3) | +0.0020 ± 0.0000 (3) |" in text
    assert "With FM the mean of three teachers is ahead at 50k, behind at none." in text
    assert "With FM the mean of mixed teachers is ahead at no size, behind at 6541." in text
    seeds = {
        str(seed): {"by_labels": {"test_auc": 0.84}, "taught": {"test_auc": auc}}
        for seed, auc in ((0, 0.845), (2, 0.846))
    }
    write_json(settings.results / "teacher/taught-dense-fm.json", {"seeds": seeds})
    text = " ".join(part("teacher").page(settings).split())
    assert "comes to 0.8455 ± 0.0007 (2), +0.0055 ± 0.0007 (2) against labels." in text
    assert "FM's tickets are: 6541 +0.0005 ± 0.0007 (2)." in text
    headline = part("headline").page(settings)
    assert "taught throughout +0.0010 ± 0.0010 (3); by three teachers +0.0030" in headline
    assert "| 0.8483 ± 0.0006 (3) | -0.0017 ± 0.0006 (3) | 0.8463 ± 0.0006 (3) | -0.0037 ± 0.0006 (3) |" in headline
    (claim,) = part("headline").claims(settings)
    assert claim.said == "*Ours:* taught by the dense model they are"
    assert claim.holds == "no"  # with 50k it is above the dense model, but those are no few per cent


def test_budgets_of_one_set_of_candidates_share_its_search(settings, results):
    runtime = part("runtime")
    one = {"search_seconds": 10.0, "search_epochs": 5, "retrain_seconds": 1.0}
    run = dict.fromkeys(reversed(runtime.SPACES), one)  # whatever the order they were made in
    shared = dict(zip(runtime.SPACES, runtime._shared_searches(run), strict=True))
    assert [budget for budget, found in shared.items() if found["search_seconds"] == 0] == ["50k", "20k"]
    assert all(found["retrain_seconds"] == 1 for found in shared.values())


def test_granularities_are_judged_against_the_papers_best_seed_by_seed():
    def content(aucs):
        return {"seeds": {seed: {"points": [{"budget": "12k", "test": {"auc": auc}}]} for seed, auc in aucs.items()}}

    contents = {
        "global": content({"1": 0.848, "0": 0.846}),
        "feature": content({"0": 0.830, "2": 0.900}),  # of what only one side has nothing is said
        "feature-dimension": content({"0": 0.844, "1": 0.846}),
    }
    told = part("granularity")._judged(contents, [12_000])
    assert told.endswith("(level with those not named) at 12,000: ahead of feature, behind global.")


def test_differences_are_of_the_seeds_both_have():
    def side(aucs):
        return [FrontierPoint.from_json(point(auc, seed=seed)) for seed, auc in aucs.items()]

    paired = paper("verdicts").paired
    assert paired(side({0: 0.8, 2: 0.9, 1: 0.7}), side({2: 0.5, 0: 0.6, 3: 0.1})) == pytest.approx([0.2, 0.4])
    assert paired(side({0: 0.8}), side({1: 0.8})) == []


@pytest.mark.parametrize(
    ("differences", "ahead"),
    [
        ([0.0011], True),
        ([0.0050, -0.0005, 0.0040], False),  # much on average, but not in every seed
        ([0.0009], False),
        ([0.0002, 0.0001, 0.0003], False),  # t = 3.5: chance does that in one of fourteen
        ([0.0002, 0.0002, 0.0003], True),
        ([0.0008, -0.0001, 0.0009], False),
        ([0.0001, 0.0001, 0.0020], False),  # agree, but one seed does it all
        ([0.0005, 0.0010, 0.0030], False),  # as much as 0.0015 on average, and no more than chance
    ],
)
def test_a_small_difference_counts_only_where_seeds_agree(differences, ahead):
    assert paper("verdicts").is_ahead(differences) is ahead


def test_at_equal_bytes_the_best_of_the_smaller_is_named():
    def point(label, size, storage_bytes, auc, budget=None):
        return FrontierPoint(
            label=label, budget=budget, num_parameters=size, storage_bytes=storage_bytes, test_auc=auc, seed=0,
            validation_auc=auc, validation_logloss=0.4,
        )  # fmt: skip

    points = [
        point("pep", 100, 500, 0.80, "100"), point("quantised", 400, 400, 0.82), point("quantised", 800, 800, 0.9),
        point("pep", 50, 250, 0.79, "50"), point("mde", 50, 200, 0.7, "50"),
    ]  # fmt: skip
    told = paper("verdicts").at_equal_bytes(points, ["pep"], turned=["quantised"])
    large, small, _, turned = told.splitlines()[2:]
    assert "quantised, 400 parameters | 400 | 0.8200 (-0.0200 (1))" in large
    assert "mde, 50 parameters | 200 | 0.7000 (+0.0900 (1))" in small
    assert "quantised with 800 (-0.1000 (1)), quantised with 400 (-0.0300 (1))" in turned


def test_the_committed_page_is_made_of_the_committed_results():
    made = paper("settings").PaperSettings.of(quick=False)
    parts = {name: part(name) for name in paper("make").PARTS}
    assert paper("whole_page").page_text(made, parts) == made.page.read_text(encoding="utf-8"), "make.py --draw-only"


def test_quick_runs_an_experiment_and_makes_it_again_when_its_settings_change(settings, monkeypatch):
    rows = SyntheticConfig(num_rows=1500, num_signal_fields=2, num_noise_fields=1, field_size=30)
    monkeypatch.setattr(
        type(settings), "data", lambda self, source: DataConfig(source="synthetic", synthetic=rows), raising=True
    )
    experiments = paper("experiments")
    monkeypatch.setattr("paper.settings.QUICK_EPOCHS", 2)

    name, load = "movielens-1m/fm/pep-plan", experiments.load_experiment
    for budget in ("300", "300", "200"):
        changed = replace(load(settings, name), budgets=(budget,))
        monkeypatch.setattr(experiments, "load_experiment", lambda *_, to=changed: to)
        experiments.run_experiment(settings, name, [0])
        found = experiments.read_experiment(settings, name)
        assert [(point.budget, point.num_parameters) for point in found[0].points] == [(budget, int(budget))]


def test_new_defaults_do_not_throw_results_away_but_other_values_do():
    still_holds = paper("experiments").still_holds
    now = RunConfig(budgets=("1%",))
    assert still_holds({"budgets": ["1%"]}, now)
    assert not still_holds({"budgets": ["1%", "2%"]}, now)
    assert not still_holds({"budgets": ["1%"], "gone": 1}, now)
    assert not still_holds({"budgets": ["1%"]}, replace(now, teacher_share=0.0)), "absent is a value, too"


def test_a_result_of_other_settings_is_refused_and_in_quick_passed_over(settings, tmp_path):
    stored_result, now = paper("stored").stored_result, RunConfig(budgets=("1%",))
    path, full = tmp_path / "result.json", replace(settings, quick=False)
    assert stored_result(full, path, now) == {}
    write_json(path, {"points": {}})  # from before settings were kept
    assert stored_result(settings, path, now) == {}
    content = {"config": {"budgets": ["1%"]}, "points": {}}
    write_json(path, content)
    assert stored_result(full, path, now) == stored_result(settings, path, now) == content
    other = replace(now, budgets=("2%",))
    assert stored_result(settings, path, other) == {}
    with pytest.raises(ConfigError, match=r"result\.json was made with other settings; delete it"):
        stored_result(full, path, other)


def test_seeds_are_added_to_a_result_of_the_same_settings_and_every_run_stays_told(settings, monkeypatch):
    stored, runs = paper("stored"), iter([{"commit": "a"}, {"commit": "b"}, {"commit": "b"}])
    monkeypatch.setattr(stored, "made_with", lambda: next(runs))
    full, path, config = replace(settings, quick=False), settings.results / "part" / "one.json", RunConfig()
    for seeds in ((0,), (0, 1, 2)):
        stored.add_seeds(replace(full, seeds=seeds), path, config, lambda seed: {"square": seed**2})
    content = read_json(path)
    assert content["made_with"] == [{"commit": "a"}, {"commit": "b"}]
    assert content["seeds"] == {str(seed): {"square": seed**2} for seed in range(3)}
    assert stored.read_seeds(path.parent, ("one", "other")) == {"one": [{"square": seed**2} for seed in range(3)]}
    with pytest.raises(ConfigError, match="made with other settings"):
        stored.add_seeds(full, path, replace(config, rewind="final"), lambda seed: {})


def test_a_page_names_every_commit_and_a_changed_tree():
    machine = {"cores": 2, "threads": 1}
    one, other = ({"commit": name, "changed_tree": name == "b", "machine": machine} for name in "ab")
    told = paper("page").made_from({"made_with": [one, one]}, {"seeds": {"0": {"made_with": other}, "1": {}}})
    assert told == "Made at commits a, b (changed tree) on 2 cores, 1 in use."
    assert paper("page").made_from({}) == ""


@pytest.mark.parametrize(
    "path", sorted(EXPERIMENTS.rglob("*.toml")), ids=lambda path: str(path.relative_to(EXPERIMENTS))
)
def test_every_experiment_is_a_run(path):
    config = load_toml(RunConfig, path)
    if path.parts[-3] in ("criteo", "avazu") and path.stem.startswith("pep-0") | path.stem.startswith("pep-2"):
        assert isinstance(config.embedding, PepConfig)
        assert config.embedding.pressure == "decay"
        assert config.embedding.raw_threshold_init == -150
        assert config.embedding.embedding_dim == 64
        assert config.embedding.granularity == ("feature-dimension" if path.stem == "pep-0-1" else "dimension")


def test_results_of_data_hold_no_values_of_it(settings, monkeypatch):
    statistics = part("data_statistics")
    monkeypatch.setattr(statistics, "PLACES", {"movielens-1m": "MovieLens-1M"})
    statistics.run(settings)
    content = read_json(settings.results / "data_statistics" / "movielens-1m.json")
    assert content["num_features"] > 0
    assert {key for field in content["fields"] for key in field} == {"name", "num_features", "unknown_share"}
    assert content["files"] == []  # made-up rows


def test_the_page_tells_the_files_by_rows_and_checksum(settings, results, tmp_path):
    statistics, path = part("data_statistics"), settings.results / "data_statistics" / "avazu.json"
    assert "SHA-256" not in statistics.page(settings)  # a result from before they were kept
    content = b"id,click\n1,0\n2,1\n"
    (tmp_path / "avazu").mkdir()
    (tmp_path / "avazu" / "train.csv").write_bytes(content)
    files = statistics.file_facts(replace(settings, quick=False, data_dir=tmp_path), "avazu")
    write_json(path, read_json(path) | {"files": files})
    checksum = hashlib.sha256(content).hexdigest()
    assert f"| `avazu/train.csv` | 2 | `{checksum}` |" in statistics.page(settings)


def test_a_comparison_gets_further_seeds_from_its_result_file_alone(settings):
    path = settings.results / "frontier" / "fm.json"

    def compare_mde(seeds, budgets=("5k",)):
        paper("compared").compare_method(
            settings, path, "movielens-1m/fm/pep-plan", "mde", budgets, seeds=seeds, trials=1
        )
        return paper("compared").points(path)

    first = compare_mde(1)
    shutil.rmtree(settings.temporary)
    both = compare_mde(2)
    assert both[: len(first)] == first
    assert all(1 <= at["retrain_epochs"] <= 4 for at in both)  # as many as a quick one may have
    assert [(at["label"], at["seed"]) for at in both] == [("mde", 0), ("lr", 0), ("mde", 1), ("lr", 1)]
    assert not list(settings.temporary.rglob("*seed0*"))  # the first was not trained again
    more = compare_mde(1, ("5k", "9k"))  # asked for one seed: all there are get the new budget
    assert {(at["budget"], at["seed"]) for at in more if at["label"] == "mde"} == {
        (budget, seed) for budget in ("5k", "9k") for seed in (0, 1)
    }
    assert read_json(path)["done"]["mde"]["seeds"] == 2
    assert compare_mde(2, ("9k",)) == more
    assert read_json(path)["done"]["mde"]["budgets"] == ["5k", "9k"]
    third = compare_mde(3, ("9k",))  # asked for one budget: the new seed gets all there are
    assert {at["budget"] for at in third if (at["label"], at["seed"]) == ("mde", 2)} == {"5k", "9k"}


def test_seeds_that_are_asked_for_are_those_of_all_parts():
    settings = paper("settings").PaperSettings
    assert settings.of(quick=False).plan_seeds == (0, 1, 2, 3, 4)
    assert settings.of(quick=False, seeds=[0, 1, 2]).plan_seeds == (0, 1, 2)
