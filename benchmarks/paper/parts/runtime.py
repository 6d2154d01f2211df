"""What a search costs: time per step at Criteo's shape against the base model and DartsEmb, and time to five budgets.

The steps are timed by `benchmarks/speed/paper_runtime.py`, a program of its own (it asks malloc to keep its pages).
"""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from made_with import made_with
from paper.experiments import digest, load_experiment
from paper.figures.running_time import draw_budgets, draw_steps
from paper.page import ABSENT, Claim, holds, made_from, mean_sd, picture, table
from paper.settings import BENCHMARKS, MODEL_NAMES, PaperSettings
from paper.stored import read_result, so_far, write_result
from paper.verdicts.sized import by_size
from thresher.cli.progress import display
from thresher.embeddings.darts_emb import DartsEmbConfig
from thresher.report.figures import new_figure, page_style, save_figure
from thresher.report.frontier import FrontierPoint
from thresher.runs import Run, RunConfig
from thresher.runs.stages import batches, encode_data, find_run_tickets, retrain_run_ticket
from thresher.training.history import read_history
from thresher.training.teaching import BY_LABELS

TITLE = "Running time, and one search for all budgets"
PUBLISHED = "Table 2"
MODELS = {model: MODEL_NAMES[model] for model in ("fm", "deepfm", "autoint")}
PAPER = {"base": (1039, 1222, 1642), "darts": (2239, 2285, 3154), "pep": (1341, 1525, 1963)}
"""Seconds per epoch of Criteo on the authors' GPU: FM, DeepFM, AutoInt."""
SPACES = {"100k": (4, 8, 32), "50k": (4, 8, 32), "30k": (2, 4, 16), "20k": (2, 4, 16), "12k": (1, 2, 8)}
"""Budget → the candidate sizes of the paper that suit it: DartsEmb is searched anew for each."""
STAGES = ("search", "retrain")
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
    path, told = _budgets_path(settings), load_experiment(settings, "movielens-1m/fm/pep-plan")
    told = replace(told, budgets=tuple(SPACES))

    def add(side: str, seed: int, name: str, config: RunConfig) -> None:
        """Time one run unless it is done."""
        if name not in so_far(settings, path, told, pep={}, darts={})[side].get(str(seed), {}):
            made, times = made_with(), _times(settings, config)
            content = so_far(settings, path, told, pep={}, darts={})
            content[side].setdefault(str(seed), {})[name] = times
            write_result(path, content, made)

    for seed in settings.seeds:
        base = replace(told, data=settings.data("movielens-1m"), seed=seed)
        add("pep", seed, "all", base)
        for budget, sizes in SPACES.items():
            embedding = DartsEmbConfig(candidate_sizes=sizes, embedding_dim=sizes[-1])
            add("darts", seed, budget, replace(base, embedding=embedding, budgets=(budget,)))


def _times(settings: PaperSettings, config: RunConfig) -> dict[str, Any]:
    """One search and its retrainings: seconds and epochs of each, and what came of it."""
    folder = settings.temporary / "runtime" / digest(config)
    with display() as progress, Run.started(folder, config, resume=True) as run:
        encoded = encode_data(run, progress)
        data = batches(run, encoded)
        tickets = find_run_tickets(run, encoded, data, BY_LABELS, progress)  # as published
        points = [retrain_run_ticket(run, encoded, data, ticket, BY_LABELS, progress) for ticket in tickets]
    searched = read_history(run.tickets / "history.jsonl")
    retrained = [
        record
        for ticket in tickets
        for record in read_history(run.retrained(ticket.budget) / str(BY_LABELS) / "history.jsonl")
    ]
    return {
        "search_seconds": sum(record["seconds"] for record in searched),
        "search_epochs": len(searched),
        "retrain_seconds": sum(record["seconds"] for record in retrained),
        "retrain_epochs": len(retrained),
        "points": [point.to_json() for point in points],
    }


def draw(settings: PaperSettings) -> list[Path]:
    steps, budgets = read_result(_steps_path(settings)), read_result(_budgets_path(settings))
    if not steps or not _finished(budgets):
        return []
    with page_style():
        figure = new_figure(6.9, 3.0)
        left, right = figure.subplots(1, 2, width_ratios=(2.6, 1))
        draw_steps(left, _ratios(steps), list(MODELS.values()))
        draw_budgets(right, *_totals(budgets), num_seeds=len(_finished(budgets)))
        return list(save_figure(figure, settings.images / "runtime"))


def page(settings: PaperSettings) -> str:
    steps, budgets = read_result(_steps_path(settings)), read_result(_budgets_path(settings))
    sections = [picture(settings, "runtime", "time of a step, and time to five budgets")]
    sections += [_steps_section(steps)] if steps else []
    sections += [_budgets_section(budgets)] if _finished(budgets) else []
    return "\n\n".join(filter(None, sections))


def claims(settings: PaperSettings) -> list[Claim]:
    steps, budgets = read_result(_steps_path(settings)), read_result(_budgets_path(settings))
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
    if sides := _sides(budgets):
        darts, shared = _times_first(sides)[1:]
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


def _budgets_section(content: Mapping[str, Any]) -> str:
    sides, rows = _sides(content), []
    for (name, runs), times in zip(sides.items(), _times_first(sides), strict=True):
        searched, retrained = ([_seconds(run, stage) for run in runs] for stage in STAGES)
        epochs = [float(sum(one["search_epochs"] for one in run)) for run in runs]
        totals = [a + b for a, b in zip(searched, retrained, strict=True)]
        cells = [mean_sd(numbers, 0) for numbers in (epochs, searched)]
        rows.append([name, *cells, mean_sd(times, 1), *(mean_sd(numbers, 0) for numbers in (retrained, totals))])
    pep, every, _ = ([one for run in runs for one in run] for runs in sides.values())
    aucs = [[budget, _told(pep, budget), _told(every, budget)] for budget in SPACES]
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
            made_from(content),
        ]
    )


def _candidates() -> str:
    """The sets of candidate sizes, and the budgets each serves."""
    budgets: dict[tuple[int, ...], list[str]] = {}
    for budget, sizes in SPACES.items():
        budgets.setdefault(sizes, []).append(budget)
    return "; ".join(f"{', '.join(map(str, sizes))} for {' and '.join(of)}" for sizes, of in budgets.items())


def _finished(content: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]]:
    """PEP's one run and DartsEmb's by budget, of each seed that has all of them."""
    pep, darts = content.get("pep", {}), content.get("darts", {})
    return [(pep[seed]["all"], darts[seed]) for seed in sorted(pep) if len(darts.get(seed, {})) == len(SPACES)]


def _sides(content: Mapping[str, Any]) -> dict[str, list[list[Mapping[str, Any]]]]:
    """Way to five budgets → for each seed the runs it consists of; nothing while no seed has all of them."""
    found = _finished(content)
    return {} if not found else {
        "PEP plan, one search": [[pep] for pep, _ in found],
        "DartsEmb, a search for each budget": [list(darts.values()) for _, darts in found],
        "DartsEmb, a search for each set of candidates": [_shared_searches(darts) for _, darts in found],
    }  # fmt: skip


def _times_first(sides: Mapping[str, list[list[Mapping[str, Any]]]]) -> list[list[float]]:
    """How many times the first way's searching each takes, seed by seed: seconds vary with the jobs beside them."""
    searched = [[_seconds(run, "search") for run in runs] for runs in sides.values()]
    return [[one / first for one, first in zip(runs, searched[0], strict=True)] for runs in searched]


def _seconds(run: Sequence[Mapping[str, Any]], stage: str) -> float:
    return float(sum(one[f"{stage}_seconds"] for one in run))


def _shared_searches(run: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The same runs of DartsEmb, budgets of one set of candidates sharing the first's search."""
    shared: list[Mapping[str, Any]] = []
    seen: set[tuple[int, ...]] = set()
    for budget, sizes in SPACES.items():
        free = {"search_seconds": 0.0, "search_epochs": 0} if sizes in seen else {}
        shared.append({**run[budget], **free})
        seen.add(sizes)
    return shared


def _told(runs: Sequence[Mapping[str, Any]], budget: str) -> str:
    points = [FrontierPoint.from_json(point) for one in runs for point in one["points"] if point["budget"] == budget]
    return next((one.told_auc() for one in by_size(points)), ABSENT)


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


def _totals(content: Mapping[str, Any]) -> tuple[dict[str, dict[str, float]], list[float]]:
    """Way → mean seconds of each stage, and the standard deviations of their sums over seeds."""
    pep, darts, _ = _sides(content).values()
    means = {
        name: {stage: fmean(_seconds(run, stage) for run in runs) for stage in STAGES}
        for name, runs in (("PEP,\none search", pep), ("DartsEmb,\nfive", darts))
    }
    sums = [[sum(_seconds(run, stage) for stage in STAGES) for run in runs] for runs in (pep, darts)]
    return means, [stdev(each) if len(each) > 1 else 0.0 for each in sums]


def _epoch(steps: Mapping[str, Any], model: str, side: str) -> float:
    return float(steps["sides"][f"{model}, {side}"]["epoch_seconds"])


def _steps_path(settings: PaperSettings) -> Path:
    return settings.results / "runtime" / "steps.json"


def _budgets_path(settings: PaperSettings) -> Path:
    return settings.results / "runtime" / "five_budgets.json"
