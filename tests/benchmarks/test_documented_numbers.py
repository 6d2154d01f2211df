"""Numbers in README and docs that are written by hand match the result files."""

from itertools import pairwise
from pathlib import Path
from statistics import fmean

import cost_curve
import deploy_pages
import floor_and_rival
import readme_table
import reliability_page
from generated_sections import fill
from paper.parts import ablation
from run import settings_match
from thresher._internal.settings import load_toml
from thresher._internal.storage.files import read_json
from thresher.experiment.config import RunConfig

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"


def test_docs_match_the_results_of_third_party_models():
    rows = {}
    for line in (REPOSITORY / "docs" / "compatible_models.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[2].startswith("0."):
            rows[tuple(cells[2:])] = cells[:2]
    measured = [seeds["0"] for seeds in read_json(RESULTS / "third_party.json")["models"].values()]
    expected = {
        (f"{it['dense']['test_auc']:.4f}", f"{it['5%']['test_auc']:.4f}", f"{it['test_auc_gain']:+.4f}")
        for it in measured
    }
    assert expected
    assert set(rows) == expected


def test_readme_numbers_match_the_results():
    text = readme_table.README.read_text(encoding="utf-8")
    assert fill(text, readme_table.sections()) == text, "run python benchmarks/readme_table.py"


def test_campaigns_in_the_docs_match_the_results():
    text = reliability_page.PAGE.read_text(encoding="utf-8")
    assert fill(text, reliability_page.sections()) == text, "run python benchmarks/reliability_page.py"


def test_floor_and_rival_in_the_docs_match_the_results():
    text = floor_and_rival.PAGE.read_text(encoding="utf-8")
    assert fill(text, floor_and_rival.sections()) == text, "run python benchmarks/floor_and_rival.py --page"


def test_costs_in_the_docs_match_the_results():
    text = cost_curve.PAGE.read_text(encoding="utf-8")
    assert fill(text, cost_curve.sections()) == text, "run python benchmarks/cost_curve.py"


def test_pages_on_deployment_match_the_results():
    for page, sections in deploy_pages.sections().items():
        text = (deploy_pages.DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert fill(text, sections) == text, "run python benchmarks/deploy_pages.py"


def test_search_docs_table_of_models_matches_the_experiments():
    docs = (REPOSITORY / "docs" / "search_results.md").read_text(encoding="utf-8")
    for model in ("fm", "deepfm", "autoint"):
        for row in read_json(RESULTS / "movielens-1m" / model / "pep-plan.json")["summary"]:
            size = f"{row['num_parameters']:,}" + (" (dense)" if row["budget"] is None else "")
            assert f"| {size} | {row['test_auc']['mean']:.4f} ± {row['test_auc']['sd']:.4f} |" in docs


COSTS = {
    "search.optimizer.weight_decay=0": "no weight decay in the search",
    "hard when late": "a hard instead of a soft threshold late in the search",
    "search.plan_epochs=10": "a short plan (10 epochs instead of 20)",
    "speeds up": "a plan that falls fastest at the end",
    "search.warmup_epochs=2": "a short warm-up (2 epochs)",
    "search.optimizer.threshold_learning_rate=0.01": "a high learning rate of the deviations",
    "training.optimizer.weight_decay=0": "in retraining no weight decay",
    "training.optimizer.weight_decay=0.00003": "three times the weight decay",
    "training.optimizer.learning_rate=0.0003": "or a third of the learning rate",
}
GAINS = {
    "embedding.embedding_dim=128": "a search with D = 128 gains {} and {}",
    "training.optimizer.learning_rate=0.003": "retraining at three times the learning rate gains {} and {}",
}
LEVEL = {
    "rewind=random": "(initial, random,",
    "rewound to epoch 1": "after one epoch",
    "rewound to epoch 3": "after three epochs",
    "rewind=final": "final weights of the search)",
    "search.warmup_patience=3": "a warm-up with more patience",
    "search.plan_epochs=40": "a plan of 40 epochs",
    "slows down": "a plan that slows down",
    "cubic": "a cubic plan",
    "embedding.threshold_function=sigmoid": "sigmoid instead of softplus",
    "training.average_decay=0": "no running mean of the weights",
    "search.optimizer.threshold_learning_rate=0.0001": "a tenth of the deviations' learning rate",
    "embedding.learn_deviation=false": "the deviation fixed at 0",
    "embedding.embedding_dim=32": "a search with D = 32",
    "search.optimizer.weight_decay=0.0001": "ten times the weight decay in the search",
}


def test_search_docs_agree_with_the_ablation():
    variants = read_json(RESULTS / "paper" / "ablation" / "fm.json")["variants"]
    better, worse = ablation.better_and_worse(variants, ablation.BUDGETS["fm"])
    assert {*better} == {*GAINS}
    assert {*worse} == {*COSTS}
    assert variants.keys() - {ablation.DEFAULT, *better, *worse} == {*LEVEL}
    assert all(len(seeds) == 3 for seeds in variants.values())
    docs = " ".join((REPOSITORY / "docs" / "search_results.md").read_text(encoding="utf-8").split())
    costs, docs = docs[docs.index("- Worse:") :].split("- Better, but", 1)
    gains, level = docs.split("- No clear difference:", 1)
    assert [words for words in COSTS.values() if words not in costs] == []
    assert [words for words in LEVEL.values() if words not in level] == []

    def gained(change):
        """Mean gain at both sizes."""
        return [
            fmean(aucs[budget] - variants[ablation.DEFAULT][seed][budget] for seed, aucs in variants[change].items())
            for budget in ablation.BUDGETS["fm"]
        ]

    for change, words in GAINS.items():
        assert words.format(*(f"{gain:.4f}" for gain in gained(change))) in gains
    for change in ("embedding.embedding_dim=32", "search.optimizer.weight_decay=0.0001"):
        assert f"The last two are lower by {-gained(change)[1]:.4f} on average at 6,541" in level


def test_search_docs_on_distillation_match_the_results():
    docs = " ".join((REPOSITORY / "docs" / "search_results.md").read_text(encoding="utf-8").split())
    seeds = read_json(RESULTS / "movielens-1m/fm/pep-plan.json")["seeds"].values()
    tried = [seed["teacher"]["validation_auc"] for seed in seeds]
    steps = [[aucs[way] for aucs in tried] for way in ("by-labels", "taught-1", "searched-taught-1")]
    hard, retrained, searched = (f"{fmean(aucs):.4f}" for aucs in steps)
    assert (
        f"five seeds: {hard} with hard labels, {retrained} with distillation in retraining, {searched} with "
        "distillation in search and retraining. For every seed the second is higher than the first, and the third "
        "higher than the second" in docs
    )
    assert len(tried) == 5
    assert all(before < after for each in pairwise(steps) for before, after in zip(*each, strict=True))
    by_labels, one, three = (
        next(row["test_auc"]["mean"] for row in read_json(path)["summary"] if row["budget"] == "50k")
        for path in (
            RESULTS / f"movielens-1m/fm/{name}.json"
            for name in ("pep-plan-by-labels", "pep-plan", "pep-plan-three-teachers")
        )
    )
    assert (
        f"with hard labels is {by_labels:.4f} (three seeds), with distillation in search and retraining {one:.4f} "
        "(five)" in docs
    )
    assert f"The mean of three teachers gives FM's ticket of 50,000 a test AUC of {three:.4f} (three seeds)" in docs


def test_search_docs_on_mixed_teachers_match_the_results():
    docs = " ".join((REPOSITORY / "docs" / "search_results.md").read_text(encoding="utf-8").split())
    fm, autoint = (
        {row["budget"]: row["test_auc"] for row in read_json(RESULTS / "movielens-1m" / path)["summary"]}
        for path in ("fm/pep-plan-mixed-teachers.json", "autoint/pep-plan-mixed-teachers.json")
    )
    large, middle, small, dense = (f"{fm[budget]['mean']:.4f}" for budget in ("50k", "20k", "6541", None))
    assert (
        f"reach {large}, {middle} and {small}, and its dense model on hard labels reaches {dense} (three seeds" in docs
    )
    seeds = {2: "two", 3: "three"}[autoint["9000"]["seeds"]]
    assert f"AutoInt's ticket of 9,000 reaches {autoint['9000']['mean']:.4f} ({seeds} seeds)" in docs
    assert fm["20k"]["seeds"] == 3


def test_docs_on_the_distilled_dense_model_match_the_results():
    docs = " ".join((REPOSITORY / "docs/search_results.md").read_text(encoding="utf-8").split())
    seeds = read_json(RESULTS / "paper/teacher/taught-dense-fm.json")["seeds"]
    tickets = read_json(RESULTS / "movielens-1m/fm/pep-plan-mixed-teachers.json")["seeds"]
    shown = f"{fmean(found['taught']['test_auc'] for found in seeds.values()):.4f}"
    costs = [
        fmean(
            point["test_auc"] - found["taught"]["test_auc"]
            for seed, found in seeds.items()
            for point in tickets[seed]["points"]
            if point["budget"] == budget
        )
        for budget in ("50k", "20k", "6541")
    ]
    words = "{:+.4f}, {:+.4f} and {:+.4f}".format(*costs).replace("-", "−")
    assert f"distilled from the same teachers reaches {shown} (three seeds)" in docs
    assert f"the tickets differ by {words}, which is the cost of pruning alone" in docs
    assert len(seeds) == 3


def test_every_result_was_made_with_the_current_settings_of_its_experiment():
    stored = [path for path in RESULTS.glob("*/*/*.json") if path.relative_to(RESULTS).parts[0] != "paper"]
    assert stored
    for path in stored:
        experiment = (REPOSITORY / "benchmarks/experiments" / path.relative_to(RESULTS)).with_suffix(".toml")
        assert settings_match(read_json(path)["config"], load_toml(RunConfig, experiment)), path


def test_search_docs_on_the_deviation_match_the_experiments():
    docs = (REPOSITORY / "docs" / "search_results.md").read_text(encoding="utf-8")
    names = ("pep-plan-by-labels", "pep-plan-fixed-deviation")
    rows = zip(*(read_json(RESULTS / "movielens-1m" / "fm" / f"{name}.json")["summary"] for name in names), strict=True)
    for learned, fixed in rows:
        cells = [f"{row['test_auc']['mean']:.4f} ± {row['test_auc']['sd']:.4f}" for row in (learned, fixed)]
        assert learned["budget"] is None or f"| {learned['num_parameters']:,} | {' | '.join(cells)} |" in docs
