"""Panels of the running time figure: steps at Criteo's shape, and five budgets."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from paper.figures.annotations import ANNOTATION_COLOUR
from paper.five_budgets import Strategy
from thresher.report.figures import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS = {
    "DartsEmb, paper": (COLOURS[3], "////"),
    "PEP, paper": (COLOURS[0], "////"),
    "DartsEmb, Thresher": (COLOURS[3], ""),
    "PEP, authors' step": (COLOURS[5], "xxxx"),
    "PEP, Thresher": (COLOURS[0], ""),
}
"""Colour by method; a hatch marks the paper's numbers and the authors' step."""


def draw_steps(axes: "Axes", ratios: Mapping[str, Sequence[float]], models: Sequence[str]) -> None:
    """Draw bars that start at 1, the time of a training step without pruning."""
    for at, (name, of_models) in enumerate(ratios.items()):
        places = [model + 0.17 * (at - 2) for model in range(len(models))]
        colour, hatch = BARS[name]
        heights = [ratio - 1 for ratio in of_models]
        bars = axes.bar(
            places, heights, bottom=1, width=0.16, color=colour, hatch=hatch, edgecolor="white", linewidth=0, label=name
        )
        axes.bar_label(bars, [f"{ratio:#.3g}" for ratio in of_models], fontsize=7, padding=1)
    axes.axhline(1, color="#555555", linewidth=1)
    axes.set_yscale("log")
    axes.set_yticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes.set_ylim(0.9, 1.3 * max(max(of_models) for of_models in ratios.values()))
    axes.minorticks_off()
    axes.set_xticks(range(len(models)), list(models))
    axes.grid(visible=False, axis="x")
    axes.set_ylabel("time of a step / training step")
    axes.set_title("Criteo's shape", loc="left")
    axes.legend(loc="upper right", fontsize=8, borderaxespad=0)


def draw_budgets(axes: "Axes", strategies: Mapping[str, Strategy]) -> None:
    """Draw stacked bars of mean search and retraining time, with the standard deviation of their sum."""
    names, bottoms = list(strategies), [0.0] * len(strategies)
    for stage, label, colour, hatch in (
        ("search", "search", COLOURS[0], ""),
        ("retrain", "retraining", COLOURS[4], "//"),
    ):
        heights = [fmean(strategy.seconds(stage)) for strategy in strategies.values()]
        axes.bar(
            names, heights, bottom=bottoms, width=0.6, color=colour, hatch=hatch, edgecolor="white", linewidth=0,
            label=label,
        )  # fmt: skip
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    totals = [strategy.total_seconds() for strategy in strategies.values()]
    spreads = [stdev(each) if len(each) > 1 else 0.0 for each in totals]
    axes.errorbar(names, bottoms, yerr=spreads, fmt="none", ecolor=ANNOTATION_COLOUR, capsize=3, linewidth=1)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel(f"seconds for five budgets ({len(totals[0])} seeds)")
    axes.set_title("MovieLens-1M, FM", loc="left")
    axes.legend(loc="upper left", fontsize=8, borderaxespad=0)
