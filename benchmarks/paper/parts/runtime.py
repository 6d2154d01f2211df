"""Cost of a search: time per step at Criteo's shape against training and DartsEmb, and time for five budgets.

The steps are timed by `benchmarks/speed/paper_runtime.py`, a separate program because it configures malloc.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paper.figures.running_time import draw_budgets, draw_steps
from paper.five_budgets import SPACES, Strategies, time_budgets
from paper.markdown import Claim, holds, mean_sd, paragraphs, picture, provenance, table
from paper.result_files import read_result
from paper.settings import BENCHMARKS, MODEL_NAMES, PaperSettings
from thresher.report.figures import new_figure, page_style, save_figure

TITLE = "Running time, and one search for all budgets"
PUBLISHED = "Table 2"
MEASURED = """The time of a training step and of a search step at Criteo's shape, and the time to serve five budgets on
MovieLens-1M with PEP and with DartsEmb."""
MODELS = {model: MODEL_NAMES[model] for model in ("fm", "deepfm", "autoint")}
PAPER = {"base": (1039, 1222, 1642), "darts": (2239, 2285, 3154), "pep": (1341, 1525, 1963)}
"""Seconds per epoch of Criteo on the authors' GPU: FM, DeepFM, AutoInt."""
MAX_RATIO = 1.3
"""Time of a search epoch as a multiple of a training epoch, as claimed by the paper."""
VARIANTS = {
    "base_dense": ("training, dense updates", "base_dense"),
    "darts_dense": ("DartsEmb, dense updates", "base_dense"),
    "pep_published": ("PEP, authors' step", "base_dense"),
    "base_rows": ("training, row updates", "base_rows"),
    "pep_rows": ("PEP, row updates", "base_rows"),
}
"""Stored name → displayed name, and the stored name of its base."""


def run(settings: PaperSettings) -> None:
    if not _steps_path(settings).exists():
        script = BENCHMARKS / "speed" / "paper_runtime.py"
        arguments = [sys.executable, str(script), "--out", str(_steps_path(settings))]
        subprocess.run([*arguments, "--quick"] if settings.quick else arguments, check=True)
    time_budgets(settings, _budgets_path(settings))


def draw(settings: PaperSettings) -> list[Path]:
    steps, found = read_result(_steps_path(settings)), Strategies.of(read_result(_budgets_path(settings)))
    if not steps or found is None:
        return []
    with page_style():
        figure = new_figure(6.9, 3.0)
        left, right = figure.subplots(1, 2, width_ratios=(2.6, 1))
        draw_steps(left, _ratios(steps), list(MODELS.values()))
        draw_budgets(right, {"PEP,\n1 search": found.pep, "DartsEmb,\n5 searches": found.darts})
        return list(save_figure(figure, settings.images / "runtime"))


def page(settings: PaperSettings) -> str:
    steps, budgets = read_result(_steps_path(settings)), read_result(_budgets_path(settings))
    strategies = Strategies.of(budgets)
    return paragraphs(
        picture(settings, "runtime", "time of a step, and time for five budgets"),
        _steps_section(steps) if steps else "",
        _budgets_section(budgets, strategies) if strategies is not None else "",
    )


def claims(settings: PaperSettings) -> list[Claim]:
    steps, strategies = read_result(_steps_path(settings)), Strategies.of(read_result(_budgets_path(settings)))
    found = []
    if steps:
        own, authors = (_ratios(steps)[name] for name in ("PEP, Thresher", "PEP, authors' step"))
        evidence = (
            "Time of a search step divided by that of a training step, at Criteo's shape, for FM, DeepFM, AutoInt: "
            f"{', '.join(f'{ratio:.2f}×' for ratio in own)} with row updates; the authors' search step divided by a "
            f"training step with dense updates, on these CPUs: {', '.join(f'{ratio:.1f}×' for ratio in authors)}"
        )
        verdict = holds(ratio <= MAX_RATIO for ratio in (*own, *authors))
        statement = "A search takes 20 to 30 % more time per epoch than training"
        meaning = "This holds for Thresher's step. The authors' step processes the whole table, which is slow on a CPU."
        found.append(Claim(statement, verdict, evidence, meaning if max(own) <= MAX_RATIO < min(authors) else ""))
    if strategies is not None:
        darts, shared = (strategy.times(strategies.pep) for strategy in (strategies.darts, strategies.shared))
        evidence = (
            "FM on MovieLens-1M, time of searching for five sizes, compared with PEP: DartsEmb with one search per "
            f"size takes {mean_sd(darts, 1)} times as long, with one search per set of candidates "
            f"{mean_sd(shared, 1)} times"
        )
        found.append(Claim("One search serves all sizes", holds(times > 1 for times in (*darts, *shared)), evidence))
    return found


def _steps_section(steps: Mapping[str, Any]) -> str:
    rows: list[list[str]] = []
    for kind, title in (("base", "paper, training"), ("darts", "paper, DartsEmb"), ("pep", "paper, PEP")):
        times = zip(PAPER[kind], PAPER["base"], strict=True)
        rows.append([title, *(f"{seconds:,} s ({seconds / base:.2f}×)" for seconds, base in times)])
    for variant, (name, base) in VARIANTS.items():
        epochs = [(_epoch(steps, model, variant), _epoch(steps, model, base)) for model in MODELS]
        rows.append([name, *(f"{seconds:,.0f} s ({seconds / to:.2f}×)" for seconds, to in epochs)])
    settings = steps["settings"]
    return paragraphs(
        f"Seconds per epoch at Criteo's shape ({settings['num_features']:,} features, D = {settings['embedding_dim']}, "
        f"{settings['num_fields']} fields, batches of {settings['batch_size']:,}, {settings['steps_per_epoch']:,} "
        "steps), and the multiple of the training epoch above it. The paper used one GPU. Here a step is measured on "
        f"{settings['threads']} threads of {steps['machine']['cpu']} with synthetic rows that have Criteo's long tail, "
        "and multiplied by the steps of an epoch. DartsEmb has the candidates "
        f"{', '.join(map(str, settings['candidate_sizes']))} (the paper's largest is 32), shares columns among them "
        "and uses first-order gradients. *The authors' step* does what their code does, over the whole table: "
        "threshold, differentiate, clip, update without a fused kernel, and list the non-zero entries. Its "
        "multiple is relative to a training step that is not theirs: with a fused update, no clipping and no list.",
        table(["", *MODELS.values()], rows),
    )


def _budgets_section(content: Mapping[str, Any], strategies: Strategies) -> str:
    rows = [
        [
            strategy.name,
            mean_sd(strategy.search_epochs(), 0),
            mean_sd(strategy.seconds("search"), 0),
            mean_sd(strategy.times(strategies.pep), 1),
            mean_sd(strategy.seconds("retrain"), 0),
            mean_sd(strategy.total_seconds(), 0),
        ]
        for strategy in strategies
    ]
    aucs = [[budget, strategies.pep.auc_text(budget), strategies.darts.auc_text(budget)] for budget in SPACES]
    runs = strategies.darts.runs
    last, last_training = (content["config"][stage]["max_epochs"] for stage in ("search", "training"))
    searches = sum(run["search_epochs"] >= last for run in runs)
    retrainings = sum(run["retrain_epochs"] >= last_training for run in runs)
    return paragraphs(
        "### One search for all budgets",
        "MovieLens-1M, FM, five budgets. PEP serves all of them with one search. DartsEmb needs one search per budget, "
        f"with suitable candidate sizes ({_candidates()}). The paper has three sets of candidates; the last row counts "
        "one search per set. Both methods need retraining, which stops early by itself. Totals exclude the dense "
        "model. All runs used one core while other jobs used the other core, so seconds vary more than epochs. "
        f"{searches} of {len(runs)} searches of DartsEmb reached their last epoch ({last}), and {retrainings} of its "
        f"retrainings reached theirs ({last_training}).",
        table(["", "search epochs", "search, s", "search, multiple of PEP", "retraining, s", "total, s"], rows),
        table(["test AUC", "PEP plan", "DartsEmb"], aucs),
        provenance(content),
    )


def _candidates() -> str:
    """Format the sets of candidate sizes and their budgets."""
    budgets: dict[tuple[int, ...], list[str]] = {}
    for budget, sizes in SPACES.items():
        budgets.setdefault(sizes, []).append(budget)
    return "; ".join(f"{', '.join(map(str, sizes))} for {' and '.join(of)}" for sizes, of in budgets.items())


def _ratios(steps: Mapping[str, Any]) -> dict[str, list[float]]:
    """Return name → multiple of training for each model."""
    paper = {
        f"{title}, paper": [seconds / base for seconds, base in zip(PAPER[kind], PAPER["base"], strict=True)]
        for kind, title in (("darts", "DartsEmb"), ("pep", "PEP"))
    }
    measured = {"DartsEmb, Thresher": "darts_dense", "PEP, authors' step": "pep_published", "PEP, Thresher": "pep_rows"}
    return paper | {
        name: [_epoch(steps, model, variant) / _epoch(steps, model, VARIANTS[variant][1]) for model in MODELS]
        for name, variant in measured.items()
    }


def _epoch(steps: Mapping[str, Any], model: str, variant: str) -> float:
    return float(steps["sides"][f"{model}, {variant}"]["epoch_seconds"])


def _steps_path(settings: PaperSettings) -> Path:
    return settings.results / "runtime" / "steps.json"


def _budgets_path(settings: PaperSettings) -> Path:
    return settings.results / "runtime" / "five_budgets.json"
