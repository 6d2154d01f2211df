"""Frequency against density: do frequent features keep more dimensions?

The figures show the distribution of feature frequencies, the density of each frequency group over a search, and the
density of features by frequency in a ticket. Density is the kept share of a vector; the paper calls it sparsity.
"""

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paper.markdown import NOT_RUN_YET, Claim, holds, mean_sd, paragraphs, picture, provenance, table
from paper.measures import GROUP_EDGES, group_names
from paper.result_files import compute_missing_seeds, read_result, read_seeds
from paper.searches import RecordedConfig, Search, search, search_config
from paper.settings import DATASET_NAMES, PaperSettings
from thresher.embeddings.pep import Pressure
from thresher.report.figures import COLOURS, MARKERS, new_figure, page_style, save_figure, set_count_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh

TITLE = "Frequency against density"
PUBLISHED = "Figure 6"
MEASURED = """The kept share of a feature's vector (*density*; the paper calls it sparsity) against the number of
training rows with the feature, for FM on MovieLens-1M. The paper shows curves without numbers: frequent features stay
dense, rare ones do not, with exceptions in both directions."""
PART = "frequency"
SOURCE = "movielens-1m"
PRESSURES: dict[Pressure, str] = {"decay": "PEP decay", "plan": "PEP plan"}
BUDGETS: dict[Pressure, str] = {"decay": "30k", "plan": "25k"}
"""Budgets of the tickets in the heat maps; a search that does not reach one shows its smallest ticket."""
COUNT_EDGES = [10 ** (k / 4) for k in range(25)]  # four to a decade, up to a million
DENSITY_EDGES = [k / 16 for k in range(17)]
FULL_COLOUR = 0.5
"""Upper end of the colour scale: few cells of the heat map come close to 1."""
FIRST_EPOCH_NOTE = "1–9 rows: pruned by L2\nin the first epoch, not\nby the thresholds"
"""Explains why the rarest group starts below 1 with PEP decay; `_first_epoch_text` has the details."""


def run(settings: PaperSettings) -> None:
    for pressure in PRESSURES:

        def of_seed(seed: int, pressure: Pressure = pressure) -> dict[str, Any]:
            found = search(settings, SOURCE, seed=seed, pressure=pressure)
            return {
                "groups_by_epoch": [_rounded(record["groups"]) for record in found.records],
                "kept_by_epoch": [record["num_kept"] for record in found.records],
                "counts": np.histogram(_seen(found), COUNT_EDGES)[0].tolist(),
                "ticket": _ticket_densities(found, BUDGETS[pressure]),
            }

        recorded = RecordedConfig(searches=(search_config(settings, SOURCE, pressure=pressure),))
        compute_missing_seeds(settings, settings.result_path(PART, pressure), recorded, of_seed)


def _ticket_densities(found: Search, budget: str) -> dict[str, Any] | None:
    """Return histogram and rank correlation of density and frequency in one ticket."""
    if not found.tickets:
        return None
    chosen = budget if budget in found.tickets else list(found.tickets)[-1]
    ((_, sizes),) = found.tickets[chosen].sizes().items()
    densities = sizes.numpy()[found.table.feature_counts > 0] / found.config.embedding.embedding_dim
    counts = _seen(found)
    return {
        "budget": chosen,
        "histogram": density_histogram(counts, densities).tolist(),
        "rank_correlation": round(rank_correlation(counts, densities), 4),
        "dropped_share": round(float((densities == 0).mean()), 4),
    }


def _seen(found: Search) -> NDArray[np.int64]:
    counts = found.table.feature_counts
    seen: NDArray[np.int64] = counts[counts > 0]
    return seen


def density_histogram(counts: NDArray[np.int64], densities: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of features by density (rows) and count (columns), `[16, 24]`."""
    table, _, _ = np.histogram2d(densities, counts, bins=(DENSITY_EDGES, COUNT_EDGES))
    return table.astype(np.int64)


def rank_correlation(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return Spearman's rank correlation; equal values share a rank. It is 0 if one side is constant."""
    ranks = [_ranks(values) for values in (one, other)]
    if min(float(rank.std()) for rank in ranks) == 0:
        return 0.0
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    _, places, many = np.unique(values, return_inverse=True, return_counts=True)
    shared: NDArray[np.float64] = (np.cumsum(many) - (many - 1) / 2)[places]
    return shared


def draw(settings: PaperSettings) -> list[Path]:
    results = read_seeds(settings.results / PART, PRESSURES)
    if not results:
        return []
    with page_style():
        figure = new_figure(6.9, 2.6)
        _draw_counts(figure.subplots(), next(iter(results.values()))[0]["counts"])
        figure.suptitle(DATASET_NAMES[SOURCE], x=0.01, ha="left", fontsize=10, fontweight="bold")
        written = list(save_figure(figure, settings.images / f"{PART}_distribution"))
        figure = new_figure(6.9, 2.9 * len(results))
        panels = figure.subplots(len(results), 2, squeeze=False)
        for (pressure, seeds), (left, right) in zip(results.items(), panels, strict=True):
            _draw_trajectories(left, seeds)
            if pressure == "decay" and _first_mean(seeds) < 1:
                left.text(0.03, 0.03, FIRST_EPOCH_NOTE, transform=left.transAxes, fontsize=7.5, color="#333333")
            left.set_title(PRESSURES[pressure], loc="left")
            tickets = [seed["ticket"] for seed in seeds if seed["ticket"] is not None]
            if tickets:
                mesh = _draw_heat_map(right, tickets)
                right.set_title(f"ticket at {tickets[0]['budget']}", loc="left")
                figure.colorbar(mesh, ax=right, label="share of features per column", extend="max")
            else:
                right.set_axis_off()
        handles, labels = panels[0][0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=5, fontsize=8, title="training rows with the feature"
        )
        figure.suptitle(f"{DATASET_NAMES[SOURCE]}, FM", x=0.01, ha="left", fontsize=10, fontweight="bold")
        return written + list(save_figure(figure, settings.images / f"{PART}_density"))


def _draw_counts(axes: "Axes", counts: list[int]) -> None:
    shares = np.array(counts) / max(sum(counts), 1)
    axes.stairs(shares, COUNT_EDGES, fill=True, color=COLOURS[0])
    axes.set_xscale("log")
    axes.set_xlim(1, COUNT_EDGES[max(np.nonzero(counts)[0], default=0) + 1])
    set_count_ticks(axes.xaxis)
    axes.set_xlabel("training rows with the feature")
    axes.set_ylabel("share of features")


def _draw_trajectories(axes: "Axes", seeds: list[dict[str, Any]]) -> None:
    num_epochs = min(len(seed["groups_by_epoch"]) for seed in seeds)
    epochs = range(1, num_epochs + 1)
    for at, name in enumerate(group_names()):
        of_group = [[seed["groups_by_epoch"][epoch][at] for seed in seeds] for epoch in range(num_epochs)]
        if not of_group[0][0]["features"]:
            continue
        means = np.array([fmean(one["mean"] for one in ones) for ones in of_group])
        spreads = np.array([fmean(one["sd"] for one in ones) for ones in of_group])
        look = {
            "color": COLOURS[at],
            "marker": MARKERS[at],
            "markersize": 4,
            "markevery": (at, 5),
        }  # readable in grey print
        axes.plot(epochs, means, linewidth=1.5, label=name, **look)
        low, high = np.clip(means - spreads, 0, 1), np.clip(means + spreads, 0, 1)
        axes.fill_between(epochs, low, high, color=COLOURS[at], alpha=0.15, linewidth=0)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("search epoch")
    axes.set_ylabel("density")


def _draw_heat_map(axes: "Axes", tickets: list[dict[str, Any]]) -> "QuadMesh":
    """Draw the distribution of density for each frequency; the features of all seeds are combined."""
    total = np.sum([ticket["histogram"] for ticket in tickets], axis=0)  # [density, count]
    columns = total.sum(axis=0, keepdims=True)
    shares = np.where(columns > 0, total / np.maximum(columns, 1), np.nan)
    mesh = axes.pcolormesh(COUNT_EDGES, DENSITY_EDGES, shares, cmap="Blues", vmin=0, vmax=FULL_COLOUR)
    axes.set_xscale("log")
    axes.set_xlim(1, COUNT_EDGES[int(np.nonzero(columns[0])[0].max()) + 1])
    set_count_ticks(axes.xaxis)
    axes.grid(visible=False)
    axes.set_xlabel("training rows with the feature")
    axes.set_ylabel("density")
    return mesh


def page(settings: PaperSettings) -> str:
    results = read_seeds(settings.results / PART, PRESSURES)
    if not results:
        return NOT_RUN_YET
    first = next(iter(results.values()))[0]["groups_by_epoch"][0]
    groups = [at for at in range(len(GROUP_EDGES)) if first[at]["features"]]
    rows = []
    for pressure, seeds in results.items():
        for share in (0.5, 0.2, 0.1):
            last = [_groups_at(seed, share) for seed in seeds]
            if all(one is not None for one in last):
                cells = [mean_sd([one[at]["mean"] for one in last if one], 2) for at in groups]
                rows.append([f"{pressure}, {share:.0%} kept", *cells])
    heads = [f"{group_names()[at]} ({first[at]['features']:,})" for at in groups]
    return paragraphs(
        "Features are grouped by the number of training rows that contain them. Bands in the figure are one standard "
        "deviation over the features of a group.",
        picture(settings, f"{PART}_distribution", "Distribution of feature frequencies"),
        picture(settings, f"{PART}_density", "Density by frequency over the search and in a ticket"),
        "Mean density of each group (number of features in brackets) at different kept shares of the table:",
        table(["search", *heads], rows),
        _first_epoch_text(results.get("decay", [])),
        *(_correlation_text(pressure, seeds) for pressure, seeds in results.items()),
        provenance(*(read_result(settings.result_path(PART, pressure)) for pressure in results)),
    )


def _first_mean(seeds: list[dict[str, Any]]) -> float:
    """Return the density of the rarest group at the end of the first epoch."""
    return fmean(seed["groups_by_epoch"][0][0]["mean"] for seed in seeds)


def _first_epoch_text(seeds: list[dict[str, Any]]) -> str:
    """Explain why the rarest group starts below 1 with PEP decay although the thresholds have not moved."""
    if not seeds or _first_mean(seeds) == 1:
        return ""
    return (
        "The curves start at the end of the first epoch. With PEP decay the density of the group of "
        f"{group_names()[0]} rows is then {_first_mean(seeds):.2f}, although all entries are above the first "
        "threshold, g(−15) = 3·10⁻⁷, at the start of the search. While a feature does not occur, the only gradient of "
        "its vector is that of L2, which Adam scales to full steps, so the vector shrinks to about 10⁻¹⁵. PEP plan "
        "prunes nothing before the end of the warm-up."
    )


def claims(settings: PaperSettings) -> list[Claim]:
    texts, checks = [], []
    for pressure, seeds in read_seeds(settings.results / PART, PRESSURES).items():
        correlations = [seed["ticket"]["rank_correlation"] for seed in seeds if seed["ticket"] is not None]
        if correlations:
            texts.append(f"{PRESSURES[pressure]} {mean_sd(correlations, 2)}")
            checks += [correlation > 0 for correlation in correlations]
    evidence = f"Rank correlation of frequency and density: {'; '.join(texts)}"
    return [Claim("Frequent features keep more dimensions", holds(checks), evidence)] if texts else []


def _groups_at(seed: dict[str, Any], share: float) -> list[dict[str, float]] | None:
    """Return the groups at the first epoch that ends with at most this share of the initial count."""
    kept: list[int] = seed["kept_by_epoch"]
    at = next((at for at, count in enumerate(kept) if count <= share * kept[0]), None)
    return None if at is None else seed["groups_by_epoch"][at]


def _correlation_text(pressure: Pressure, seeds: list[dict[str, Any]]) -> str:
    tickets = [seed["ticket"] for seed in seeds if seed["ticket"] is not None]
    if not tickets:
        return ""
    correlation = mean_sd([ticket["rank_correlation"] for ticket in tickets], 2)
    dropped = mean_sd([100 * ticket["dropped_share"] for ticket in tickets], 1)
    return (
        f"Rank correlation of frequency and density in the ticket at {tickets[0]['budget']}, {PRESSURES[pressure]}: "
        f"{correlation}. {dropped} % of the features are dropped (no dimension is kept)."
    )


def _rounded(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: round(value, 5) for name, value in group.items()} for group in groups]
