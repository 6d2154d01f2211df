"""What a search costs: time per step at Criteo's shape against the base model and DartsEmb, and time to five budgets.

The steps are timed by `benchmarks/speed/paper_runtime.py`, a program of its own (it asks malloc to keep its pages).
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paper.figures.running_time import draw_budgets, draw_steps
from paper.five_budgets import SPACES, Strategies, time_budgets
from paper.markdown import Claim, holds, mean_sd, picture, provenance, table
from paper.result_files import read_result
from paper.settings import BENCHMARKS, MODEL_NAMES, PaperSettings
from thresher.report.figures import new_figure, page_style, save_figure

TITLE = "Running time, and one search for all budgets"
PUBLISHED = "Table 2"
MODELS = {model: MODEL_NAMES[model] for model in ("fm", "deepfm", "autoint")}
PAPER = {"base": (1039, 1222, 1642), "darts": (2239, 2285, 3154), "pep": (1341, 1525, 1963)}
"""Seconds per epoch of Criteo on the authors' GPU: FM, DeepFM, AutoInt."""
MOST_MORE = 1.3
"""An epoch of a search against one of training, as the paper has it."""
SIDES = {
    "base_dense": ("base, dense updates", "base_dense"),
    "darts_dense": ("DartsEmb, dense updates", "base_dense"),
    "pep_published": ("PEP, the authors' step", "base_dense"),
    "base_rows": ("base, row updates", "base_rows"),
    "pep_rows": ("PEP, row updates", "base_rows"),
}
"""What is timed → its name, and the base it is a multiple of."""


def run(settings: PaperSettings) -> None:
    if not _steps_path(settings).exists():
        script = BENCHMARKS / "speed" / "paper_runtime.py"
        words = [sys.executable, str(script), "--out", str(_steps_path(settings))]
        subprocess.run([*words, "--quick"] if settings.quick else words, check=True)
    time_budgets(settings, _budgets_path(settings))


def draw(settings: PaperSettings) -> list[Path]:
    steps, ways = read_result(_steps_path(settings)), Strategies.of(read_result(_budgets_path(settings)))
    if not steps or ways is None:
        return []
    with page_style():
        figure = new_figure(6.9, 3.0)
        left, right = figure.subplots(1, 2, width_ratios=(2.6, 1))
        draw_steps(left, _ratios(steps), list(MODELS.values()))
        draw_budgets(right, {"PEP,\none search": ways.pep, "DartsEmb,\nfive": ways.darts})
        return list(save_figure(figure, settings.images / "runtime"))


def page(settings: PaperSettings) -> str:
    steps, budgets = read_result(_steps_path(settings)), read_result(_budgets_path(settings))
    sections = [picture(settings, "runtime", "time of a step, and time to five budgets")]
    sections += [_steps_section(steps)] if steps else []
    ways = Strategies.of(budgets)
    sections += [_budgets_section(budgets, ways)] if ways is not None else []
    return "\n\n".join(filter(None, sections))


def claims(settings: PaperSettings) -> list[Claim]:
    steps, ways = read_result(_steps_path(settings)), Strategies.of(read_result(_budgets_path(settings)))
    found = []
    if steps:
        ours, authors = (_ratios(steps)[name] for name in ("PEP, ours", "PEP, authors' step, here"))
        here = ", ".join(f"{ratio:.2f}×" for ratio in ours)
        theirs = ", ".join(f"{ratio:.1f}×" for ratio in authors)
        here = (
            f"At Criteo's shape under FM, DeepFM, AutoInt, both sides with row updates: {here}; the authors' own step "
            f"against a dense base, on these CPUs: {theirs}"
        )
        said = "A search costs 20 to 30 % more time per epoch than training"
        found.append(Claim(said, holds(ratio <= MOST_MORE for ratio in (*ours, *authors)), here))
    if ways is not None:
        darts, shared = (way.times(ways.pep) for way in (ways.darts, ways.shared))
        here = (
            f"FM on MovieLens-1M, time of searching for five sizes: DartsEmb {mean_sd(darts, 1)} times PEP's one "
            f"search by one for each size, {mean_sd(shared, 1)} times by one for each set of candidates"
        )
        found.append(Claim("One search serves all sizes", holds(times > 1 for times in (*darts, *shared)), here))
    return found


def _steps_section(steps: Mapping[str, Any]) -> str:
    rows: list[list[str]] = []
    for kind, title in (("base", "paper, base"), ("darts", "paper, DartsEmb"), ("pep", "paper, PEP")):
        cells = [
            f"{second:,} s ({second / base:.2f}×)" for second, base in zip(PAPER[kind], PAPER["base"], strict=True)
        ]
        rows.append([title, *cells])
    for side, (name, base) in SIDES.items():
        times = [(_epoch(steps, model, side), _epoch(steps, model, base)) for model in MODELS]
        rows.append([name, *(f"{seconds:,.0f} s ({seconds / to:.2f}×)" for seconds, to in times)])
    settings = steps["settings"]
    return (
        f"Seconds per epoch at Criteo's shape ({settings['num_features']:,} features, D = {settings['embedding_dim']}, "
        f"{settings['num_fields']} fields, batches of {settings['batch_size']:,}; {settings['steps_per_epoch']:,} "
        "steps), and as a multiple of the base above it. The paper's are from one GPU; ours are measured steps on "
        f"{settings['threads']} threads of {steps['machine']['cpu']}, made-up rows with Criteo's long tail, times "
        f"the steps of an epoch. DartsEmb has the candidates {', '.join(map(str, settings['candidate_sizes']))} (the "
        "paper's widest has 32), shares its columns among them and takes first-order gradients. "
        "*The authors' step* does at each step what their code does, over the whole table: it thresholds, "
        "differentiates, clips, updates without a fused kernel and lists the non-zeros. The base beside it is none of "
        "theirs: it has a fused update, no clipping and no count.\n\n" + table(["", *MODELS.values()], rows)
    )


def _budgets_section(content: Mapping[str, Any], ways: Strategies) -> str:
    rows = [
        [
            way.name,
            mean_sd(way.search_epochs(), 0),
            mean_sd(way.seconds("search"), 0),
            mean_sd(way.times(ways.pep), 1),
            mean_sd(way.seconds("retrain"), 0),
            mean_sd(way.total_seconds(), 0),
        ]
        for way in ways
    ]
    aucs = [[budget, ways.pep.auc_text(budget), ways.darts.auc_text(budget)] for budget in SPACES]
    every = ways.darts.runs
    last = content["config"]["search"]["max_epochs"]
    cut = sum(one["search_epochs"] >= last for one in every)
    last_training = content["config"]["training"]["max_epochs"]
    unfinished = sum(one["retrain_epochs"] >= last_training for one in every)
    return "\n\n".join(
        [
            "### One search for all budgets",
            "MovieLens-1M, FM, five budgets. The paper's claim is that PEP serves all of them with one search, while "
            f"DartsEmb is searched anew for each, with candidate sizes to suit ({_candidates()}). The paper has three "
            "sets of candidates; the last row counts one search for each set. Retraining, which both need, takes as "
            "long as patience lets it; the dense model is in no total. All ran on one core with other jobs on the "
            "other, which came and went, so seconds vary more than epochs. "
            f"{cut} of {len(every)} searches of DartsEmb ended at their last epoch, the {last}th, {unfinished} of its "
            f"retrainings at theirs, the {last_training}th.",
            table(["", "search epochs", "search, s", "times PEP's, by seed", "retraining, s", "total, s"], rows),
            table(["test AUC", "PEP plan", "DartsEmb"], aucs),
            provenance(content),
        ]
    )


def _candidates() -> str:
    """The sets of candidate sizes, and the budgets each serves."""
    budgets: dict[tuple[int, ...], list[str]] = {}
    for budget, sizes in SPACES.items():
        budgets.setdefault(sizes, []).append(budget)
    return "; ".join(f"{', '.join(map(str, sizes))} for {' and '.join(of)}" for sizes, of in budgets.items())


def _ratios(steps: Mapping[str, Any]) -> dict[str, list[float]]:
    """Name → multiple of the base for each model."""
    paper = {
        f"{title}, paper": [second / base for second, base in zip(PAPER[kind], PAPER["base"], strict=True)]
        for kind, title in (("darts", "DartsEmb"), ("pep", "PEP"))
    }
    here = {"DartsEmb, here": "darts_dense", "PEP, authors' step, here": "pep_published", "PEP, ours": "pep_rows"}
    return paper | {
        name: [_epoch(steps, model, side) / _epoch(steps, model, SIDES[side][1]) for model in MODELS]
        for name, side in here.items()
    }


def _epoch(steps: Mapping[str, Any], model: str, side: str) -> float:
    return float(steps["sides"][f"{model}, {side}"]["epoch_seconds"])


def _steps_path(settings: PaperSettings) -> Path:
    return settings.results / "runtime" / "steps.json"


def _budgets_path(settings: PaperSettings) -> Path:
    return settings.results / "runtime" / "five_budgets.json"
