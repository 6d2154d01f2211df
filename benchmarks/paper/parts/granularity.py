"""Granularity: which entries share a threshold, from one for the whole table to one for each entry.

Left the count over epochs under the published pressure (decay), as the paper has it; right the tickets of the planned
search at equal budgets, retrained: the count says how fast a granularity prunes, the AUC what that is worth.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, get_args

from paper.markdown import NOT_RUN_YET, Claim, holds, mean_sd, picture, provenance, table
from paper.result_files import compute_missing_seeds, read_result, read_seeds
from paper.searches import RecordedConfig, search, search_config, short
from paper.settings import PaperSettings
from paper.trainings import retrain, training_config
from paper.verdicts.differences import differences_by_seed, is_better, is_worse
from thresher.embeddings.pep import Pressure
from thresher.embeddings.thresholds import GranularityName
from thresher.report.figures import COLOURS, MARKERS, new_figure, page_style, save_figure, set_count_ticks
from thresher.search.budget import Budget

TITLE = "Granularity of the thresholds"
PUBLISHED = "Figure 10"
PART = "granularity"
SOURCE = "movielens-1m"
GRANULARITIES: tuple[GranularityName, ...] = get_args(GranularityName)
BEST_IN_PAPER: GranularityName = "feature-dimension"
SHOWN_EPOCHS = (10, 20, 30, 40)


def run(settings: PaperSettings) -> None:
    for granularity in GRANULARITIES:

        def of_seed(seed: int, granularity: GranularityName = granularity) -> dict[str, Any]:
            decay = search(settings, SOURCE, seed=seed, pressure="decay", granularity=granularity)
            plan = search(settings, SOURCE, seed=seed, pressure="plan", granularity=granularity)
            points = []
            for budget in plan.tickets:
                trained = retrain(settings, plan, budget, epochs=None)
                assert trained.test is not None
                metrics = {"validation": short(trained.fit.validation), "test": short(trained.test)}
                points.append({"budget": budget, "num_parameters": trained.num_parameters, **metrics})
            return {"kept_by_epoch": [record["num_kept"] for record in decay.records], "points": points}

        pressures: tuple[Pressure, ...] = ("decay", "plan")
        searches = tuple(search_config(settings, SOURCE, pressure=it, granularity=granularity) for it in pressures)
        trainings = (training_config(settings, searches[-1], None),)
        watched = RecordedConfig(searches=searches, trainings=trainings)
        compute_missing_seeds(settings, _path(settings, granularity), watched, of_seed)


def draw(settings: PaperSettings) -> list[Path]:
    results = read_seeds(settings.results / PART, GRANULARITIES)
    if not results:
        return []
    with page_style():
        figure = new_figure(6.9, 3.4)
        figure.suptitle("MovieLens-1M, FM", x=0.01, ha="left", fontsize=10, fontweight="bold")
        left, right = figure.subplots(1, 2)
        for at, (granularity, seeds) in enumerate(results.items()):
            look = {"color": COLOURS[at], "label": granularity, "linewidth": 1.5}
            kept = [fmean(counts) for counts in zip(*(seed["kept_by_epoch"] for seed in seeds), strict=True)]
            marked = max(1, len(kept) // 5)
            left.plot(range(1, len(kept) + 1), kept, marker=MARKERS[at], markevery=(at, marked), markersize=4, **look)
            sizes, means, spreads = zip(*_line(seeds), strict=True)
            right.plot(sizes, means, marker=MARKERS[at], markersize=4.5, **look)
            if any(spreads):
                right.errorbar(sizes, means, yerr=spreads, fmt="none", ecolor=COLOURS[at], elinewidth=1, capsize=2)
        left.set_yscale("log")
        set_count_ticks(left.yaxis)
        left.set_xlabel("epoch of the search (decay)")
        left.set_ylabel("parameters kept")
        right.set_xscale("log")
        set_count_ticks(right.xaxis)
        right.set_xlabel("parameters kept (plan), retrained")
        right.set_ylabel("test AUC")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
        return list(save_figure(figure, settings.images / PART))


def _line(seeds: list[dict[str, Any]]) -> list[tuple[int, float, float]]:
    """(parameters, mean test AUC, standard deviation) by budget, smallest first."""
    return sorted((size, fmean(aucs), stdev(aucs) if len(aucs) > 1 else 0.0) for size, aucs in _by_size(seeds).items())


def _by_size(seeds: list[dict[str, Any]]) -> dict[int, list[float]]:
    aucs: dict[int, list[float]] = {}
    for point in (point for seed in seeds for point in seed["points"]):
        aucs.setdefault(int(Budget.parse(point["budget"]).amount), []).append(point["test"]["auc"])
    return aucs


def page(settings: PaperSettings) -> str:
    results = read_seeds(settings.results / PART, GRANULARITIES)
    if not results:
        return NOT_RUN_YET
    contents = {name: read_result(_path(settings, name)) for name in results}
    sizes = sorted({size for seeds in results.values() for size in _by_size(seeds)}, reverse=True)
    retrained = table(
        ["granularity", *(f"{size:,}" for size in sizes)],
        [[name, *(mean_sd(_by_size(seeds).get(size, [])) for size in sizes)] for name, seeds in results.items()],
    )
    last = min(len(seed["kept_by_epoch"]) for seeds in results.values() for seed in seeds)
    epochs = [epoch for epoch in SHOWN_EPOCHS if epoch <= last] or [last]
    kept = table(
        ["granularity", *(f"epoch {epoch}" for epoch in epochs)],
        [[name, *(_kept(seeds, epoch) for epoch in epochs)] for name, seeds in results.items()],
    )
    return "\n\n".join(
        [
            """MovieLens-1M, FM, D = 64. The paper has the first four and shows curves without
numbers: feature-dimension prunes most and retrains best, dimension comes close in fewer epochs. Field and
field-dimension are in the authors' code only. Decay reaches a size at a different epoch with each, if at all, so AUC is
compared at equal budgets under the plan. With `global` the plan's deviation is one number and cancels: that row is
magnitude pruning with a soft threshold.""",
            picture(settings, PART, "Parameters kept over epochs, and retrained AUC, for six granularities"),
            "Parameters kept by the published search (decay):",
            kept,
            "Test AUC of the planned search's tickets, retrained:",
            retrained,
            _conclusion(contents, sizes),
            provenance(*contents.values()),
        ]
    )


def claims(settings: PaperSettings) -> list[Claim]:
    contents = {name: content for name in GRANULARITIES if (content := read_result(_path(settings, name)))}
    sizes = sorted({size for content in contents.values() for size in _by_size(list(content["seeds"].values()))})
    found = [is_better(gains) for name in contents for size in sizes if (gains := _gains(contents, name, size))]
    if not found:
        return []
    judged = _conclusion(contents, sizes[::-1]).rstrip(".")
    return [*_prunes_most(contents), Claim("A threshold for each entry retrains best", holds(found), judged)]


def _prunes_most(contents: Mapping[GranularityName, Mapping[str, Any]]) -> list[Claim]:
    """What is left at the end of the published search, the least first."""
    seeds = {name: list(content["seeds"].values()) for name, content in contents.items()}
    last = min(len(seed["kept_by_epoch"]) for of_name in seeds.values() for seed in of_name)
    left = {name: fmean(seed["kept_by_epoch"][last - 1] for seed in of_name) for name, of_name in seeds.items()}
    order = sorted(left, key=lambda name: left[name])
    here = f"Kept by decay after {last} epochs: {'; '.join(f'{name} {_kept(seeds[name], last)}' for name in order)}"
    return [Claim("A threshold for each entry prunes most", holds([order[0] == BEST_IN_PAPER]), here)]


def _gains(contents: Mapping[GranularityName, Mapping[str, Any]], other: GranularityName, size: int) -> list[float]:
    """The paper's best minus another granularity at one size, for each seed both have."""

    def aucs(name: GranularityName) -> dict[str, float]:
        seeds = contents.get(name, {}).get("seeds", {})
        return {seed: auc for seed, found in seeds.items() for auc in _by_size([found]).get(size, [])}

    return [] if other == BEST_IN_PAPER else differences_by_seed(aucs(BEST_IN_PAPER), aucs(other))


def _conclusion(contents: Mapping[GranularityName, Mapping[str, Any]], sizes: Sequence[int]) -> str:
    """The paper's finding, that a threshold for each entry retrains best, checked at equal sizes."""
    told = []
    for size in sizes:
        ahead, behind = [], []
        for name in contents:
            gains = _gains(contents, name, size)
            if gains and is_better(gains):
                ahead.append(name)
            elif gains and is_worse(gains):
                behind.append(name)
        told.append(f"{size:,}: ahead of {', '.join(ahead) or 'none'}, behind {', '.join(behind) or 'none'}")
    return f"`{BEST_IN_PAPER}` against the others (level with those not named) at {'; '.join(told)}."


def _kept(seeds: list[dict[str, Any]], epoch: int) -> str:
    return mean_sd([seed["kept_by_epoch"][epoch - 1] for seed in seeds], 0)


def _path(settings: PaperSettings, granularity: str) -> Path:
    return settings.results / PART / f"{granularity}.json"
