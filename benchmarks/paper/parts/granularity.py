"""Granularity: which entries share a threshold, from one threshold for the whole table to one for each entry.

The left panel shows the number of kept entries over epochs under the published search (decay), as in the paper. The
right panel shows the retrained tickets of PEP plan at equal budgets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, get_args

from paper.markdown import NOT_RUN_YET, Claim, holds, mean_sd, paragraphs, picture, provenance, table
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
MEASURED = """How many parameters the published search (decay) keeps over its epochs with each granularity, and the test
AUC
of retrained tickets of PEP plan at equal budgets, for FM with D = 64 on MovieLens-1M. The paper has the first four
granularities and shows curves without numbers: feature-dimension prunes most and has the best AUC, and dimension comes
close in fewer epochs. Field and field-dimension exist only in the authors' code."""
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
        searches = tuple(search_config(settings, SOURCE, pressure=each, granularity=granularity) for each in pressures)
        trainings = (training_config(settings, searches[-1], None),)
        recorded = RecordedConfig(searches=searches, trainings=trainings)
        compute_missing_seeds(settings, settings.result_path(PART, granularity), recorded, of_seed)


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
        left.set_xlabel("search epoch (PEP decay)")
        left.set_ylabel("parameters kept")
        right.set_xscale("log")
        set_count_ticks(right.xaxis)
        right.set_xlabel("parameters kept (PEP plan, retrained)")
        right.set_ylabel("test AUC")
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
        return list(save_figure(figure, settings.images / PART))


def _line(seeds: list[dict[str, Any]]) -> list[tuple[int, float, float]]:
    """Return (parameters, mean test AUC, standard deviation) by budget, smallest first."""
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
    contents = {name: read_result(settings.result_path(PART, name)) for name in results}
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
    return paragraphs(
        """Decay reaches a size at a different epoch with each granularity, if at all, so AUC is compared at equal
budgets with PEP plan. With `global` the deviation of PEP plan is a single number and cancels out: that row is magnitude
pruning with a soft threshold.""",
        picture(settings, PART, "Parameters kept over epochs, and retrained AUC, for six granularities"),
        "Parameters kept by the published search (decay):",
        kept,
        "Test AUC of the retrained tickets of PEP plan:",
        retrained,
        _conclusion(contents, sizes),
        provenance(*contents.values()),
    )


def claims(settings: PaperSettings) -> list[Claim]:
    contents = {name: content for name in GRANULARITIES if (content := read_result(settings.result_path(PART, name)))}
    sizes = sorted({size for content in contents.values() for size in _by_size(list(content["seeds"].values()))})
    checks = [is_better(gains) for name in contents for size in sizes if (gains := _gains(contents, name, size))]
    if not checks:
        return []
    evidence, verdict = _conclusion(contents, sizes[::-1]).rstrip("."), holds(checks)
    meaning = "It is better than thresholds per field or feature, but not significantly than the others."
    best = Claim("One threshold per entry has the best retrained AUC", verdict, evidence, meaning)
    return [*_prunes_most(contents), best if verdict == "in part" else replace(best, meaning="")]


def _prunes_most(contents: Mapping[GranularityName, Mapping[str, Any]]) -> list[Claim]:
    """Compare the number of entries kept at the end of the published search."""
    seeds = {name: list(content["seeds"].values()) for name, content in contents.items()}
    last = min(len(seed["kept_by_epoch"]) for found in seeds.values() for seed in found)
    kept = {name: fmean(seed["kept_by_epoch"][last - 1] for seed in found) for name, found in seeds.items()}
    order = sorted(kept, key=lambda name: kept[name])
    counts = "; ".join(f"{name} {_kept(seeds[name], last)}" for name in order)
    evidence = f"Parameters kept by decay after {last} epochs: {counts}"
    return [Claim("One threshold per entry prunes most", holds([order[0] == BEST_IN_PAPER]), evidence)]


def _gains(contents: Mapping[GranularityName, Mapping[str, Any]], other: GranularityName, size: int) -> list[float]:
    """Return the paper's best granularity minus another one at one size, for each common seed."""

    def aucs(name: GranularityName) -> dict[str, float]:
        seeds = contents.get(name, {}).get("seeds", {})
        return {seed: auc for seed, found in seeds.items() for auc in _by_size([found]).get(size, [])}

    return [] if other == BEST_IN_PAPER else differences_by_seed(aucs(BEST_IN_PAPER), aucs(other))


def _conclusion(contents: Mapping[GranularityName, Mapping[str, Any]], sizes: Sequence[int]) -> str:
    """Compare one threshold per entry with the other granularities at equal sizes."""
    texts = []
    for size in sizes:
        gains = {name: each for name in contents if (each := _gains(contents, name, size))}
        better = [name for name, each in gains.items() if is_better(each)]
        worse = [name for name, each in gains.items() if is_worse(each)]
        above, below = (", ".join(names) or "no other" for names in (better, worse))
        texts.append(f"{size:,}: better than {above}, worse than {below}")
    return (
        f"`{BEST_IN_PAPER}` against the others (no significant difference from those not named) at {'; '.join(texts)}."
    )


def _kept(seeds: list[dict[str, Any]], epoch: int) -> str:
    return mean_sd([seed["kept_by_epoch"][epoch - 1] for seed in seeds], 0)
