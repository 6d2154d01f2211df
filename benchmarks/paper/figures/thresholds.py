"""Panels of the threshold figures: losses over epochs, components of a threshold, effect on the mask."""

from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from paper.figures.annotations import annotate_out_of_range
from thresher.embeddings.pep import Pressure
from thresher.report.figures import COLOURS, set_count_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PRESSURES: tuple[Pressure, ...] = ("decay", "plan")
NAMES = {"dense": "without PEP", "decay": "PEP decay", "plan": "PEP plan"}
COLOUR_OF = {"dense": "#aaaaaa", "decay": COLOURS[1], "plan": COLOURS[0]}
MARKER_OF = {"dense": "", "decay": "s", "plan": "o"}


def draw_losses(axes: "Axes", seeds: list[dict[str, Any]]) -> None:
    validation = {}
    for name in ("dense", *PRESSURES):
        for split, style in (("train_loss", "-"), ("validation_logloss", ":")):
            means = _mean_over([seed[name][split] for seed in seeds])
            label = f"{NAMES[name]}, {'training' if split == 'train_loss' else 'validation'}"
            wide = 2.6 if name == "dense" else 1.5  # PEP decay covers it for many epochs
            axes.plot(
                range(1, len(means) + 1), means, style, color=COLOUR_OF[name], linewidth=wide, label=label,
                marker=MARKER_OF[name], markersize=4, markevery=(4, 8),
            )  # fmt: skip
        validation[NAMES[name]] = means  # the second split
    # the limits exclude the first epoch and the validation loss of an overfitted table
    training = [loss for seed in seeds for name in ("dense", *PRESSURES) for loss in seed[name]["train_loss"][1:]]
    best = [min(seed[name]["validation_logloss"]) for seed in seeds for name in ("dense", *PRESSURES)]
    low, high = min(training), max(*training, *best)
    axes.set_ylim(low - 0.05 * (high - low), high + 0.2 * (high - low))
    annotate_out_of_range(axes, validation)
    axes.set_xlabel("epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw_parts(axes: "Axes", seeds: list[dict[str, Any]], pressure: Pressure) -> None:
    """Draw medians over the kept entries, with the band between the 5 % and 95 % quantiles."""
    for name, label, colour, style in (
        ("raw_pressure", "pressure", COLOURS[4], "-"),
        ("raw_loss", "loss", COLOURS[2], "--"),
    ):
        points = [
            (at + 1, np.mean([part["kept"][name] for part in parts], axis=0))
            for at, parts in enumerate(zip(*(seed[pressure]["parts"] for seed in seeds), strict=False))
            if all(part is not None and "kept" in part for part in parts)
        ]
        if points:
            epochs, quantiles = zip(*points, strict=True)
            low, middle, high = np.array(quantiles).T
            legend = f"{label} (kept entries: median and 5–95 % band)"
            axes.plot(epochs, middle, style, color=colour, linewidth=1.6, label=legend)
            axes.fill_between(epochs, low, high, color=colour, alpha=0.25, linewidth=0)
    axes.set_title(NAMES[pressure], loc="left")
    axes.set_xlabel("search epoch")
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw_swapped(axes: "Axes", seeds: list[dict[str, Any]]) -> None:
    from matplotlib.ticker import LogLocator

    for pressure in PRESSURES:
        for at, seed in enumerate(seeds):  # counts differ between seeds, so each seed has its own line
            points = [
                (kept, 100 * part["swapped_share"])
                for kept, part in zip(seed[pressure]["kept"], seed[pressure]["parts"], strict=True)
                if part is not None
            ]
            if points:
                label = None if at else NAMES[pressure]
                style, colour = "-" if pressure == "plan" else "--", COLOUR_OF[pressure]
                axes.plot(*zip(*points, strict=True), style, color=colour, linewidth=1.4, label=label)
    axes.set_xscale("log")
    axes.invert_xaxis()
    set_count_ticks(axes.xaxis)
    high, low = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high > 100 * low else (1.0, 3.0)))  # the panel is narrow
    axes.set_ylim(bottom=0)
    axes.set_xlabel("parameters kept")
    axes.set_title("swapped (% of kept)", loc="left")
    axes.legend(fontsize=8, title="one line per seed", title_fontsize=8, alignment="left", borderaxespad=0.2)


def _mean_over(curves: list[list[float]]) -> list[float]:
    return [fmean(values) for values in zip(*curves, strict=False)]
