"""The lottery ticket: does it matter where retraining starts from, and that there is any?

AUC and logloss of the test split over epochs, of the same mask trained from the initial, from random and from the
search's last weights; of the pruned model as the search left it; and of the dense model. The one figure with test
curves: they are watched for it by name, and decide nothing.
"""

from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from paper.figures.annotations import ANNOTATION_COLOUR, annotate_out_of_range
from paper.markdown import NOT_RUN_YET, Claim, holds, mean_sd, picture, provenance, table
from paper.result_files import compute_missing_seeds, read_result, read_seeds
from paper.searches import SOURCES, RecordedConfig, search, search_config
from paper.settings import DATASET_NAMES, PaperSettings
from paper.trainings import DENSE_EPOCHS, RETRAIN_EPOCHS, curve, retrain, train_dense, training_config
from paper.verdicts.differences import is_better, signed
from thresher.report.figures import COLOURS, new_figure, page_style, save_figure
from thresher.search.ticket import Rewind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "The lottery ticket"
PUBLISHED = "Figure 8; Figure 9, the same on Avazu, is not made"
PART = "lottery_ticket"
REWINDS: tuple[Rewind, ...] = ("initial", "random", "final")
NAMES = {"initial": "initial weights", "random": "random weights", "final": "the search's last weights"}
RETRAINED = {"movielens-1m": ("25k", "6500"), "criteo": ("10k", "2k")}
LOOKS = {"initial": ("-", ""), "random": ("-.", ""), "final": ("-", "^")}
"""Dash and marker: in grey print colours alone would not tell lines apart."""
SETTLED = 10
"""From this epoch on a ticket's metrics are what figures are framed by: the first ones lie far off."""
NEAR = 0.001
"""A training has arrived where its validation AUC is no more than this below its own best."""


def run(settings: PaperSettings) -> None:
    for source in SOURCES:

        def of_seed(seed: int, source: str = source) -> dict[str, Any]:
            found = search(settings, source, seed=seed)
            result: dict[str, Any] = {"dense": curve(train_dense(settings, found)), "budgets": {}}
            for budget in (budget for budget in RETRAINED[source] if budget in found.tickets):
                retrained = {rewind: curve(retrain(settings, found, budget, rewind=rewind)) for rewind in REWINDS}
                result["budgets"][budget] = retrained | {"not retrained": found.cuts[budget]}
            return result

        config = search_config(settings, source)
        trainings = tuple(training_config(settings, config, epochs) for epochs in (DENSE_EPOCHS, RETRAIN_EPOCHS))
        watched = RecordedConfig(searches=(config,), trainings=trainings)
        compute_missing_seeds(settings, _path(settings, source), watched, of_seed)


def draw(settings: PaperSettings) -> list[Path]:
    written: list[Path] = []
    for source, seeds in read_seeds(settings.results / PART, SOURCES).items():
        budgets = [budget for budget in RETRAINED[source] if all(budget in seed["budgets"] for seed in seeds)]
        with page_style():
            figure = new_figure(6.9, 4.9)
            panels = figure.subplots(2, len(budgets), sharex=True, sharey="row", squeeze=False)
            for column, budget in enumerate(budgets):
                for row, metric in enumerate(("auc", "logloss")):
                    _draw_panel(panels[row][column], seeds, budget, metric)
                panels[0][column].set_title(f"{budget} of {seeds[0]['dense']['num_parameters']:,} parameters")
                panels[1][column].set_xlabel("epoch of training")
            for row, metric in enumerate(("auc", "logloss")):
                panels[row][0].set_ylim(*limits(seeds, budgets, metric))
                for axes in panels[row]:
                    annotate_out_of_range(
                        axes, {"dense model": mean_curve([seed["dense"] for seed in seeds], metric)[1]}
                    )
            panels[0][0].set_ylabel("test AUC")
            panels[1][0].set_ylabel("test logloss")
            handles, labels = panels[0][0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
            figure.suptitle(f"{DATASET_NAMES[source]}, FM", x=0.01, ha="left", fontsize=10, fontweight="bold")
            written += save_figure(figure, settings.images / f"{PART}_{source}")
    return written


def _draw_panel(axes: "Axes", seeds: list[dict[str, Any]], budget: str, metric: str) -> None:
    def line(trainings: list[dict[str, Any]], name: str, colour: str, style: str, marker: str = "") -> None:
        epochs, means, spreads = mean_curve(trainings, metric)
        axes.plot(epochs, means, style, marker=marker, markevery=(4, 8), markersize=5, color=colour, lw=1.5, label=name)
        low, high = ([mean + sign * sd for mean, sd in zip(means, spreads, strict=True)] for sign in (-1, 1))
        axes.fill_between(epochs, low, high, color=colour, alpha=0.18, linewidth=0)

    for at, rewind in enumerate(REWINDS):
        line([seed["budgets"][budget][rewind] for seed in seeds], NAMES[rewind], COLOURS[at], *LOOKS[rewind])
    line([seed["dense"] for seed in seeds], "dense model", ANNOTATION_COLOUR, "--")
    kept = fmean(seed["budgets"][budget]["not retrained"]["test"][metric] for seed in seeds)
    axes.axhline(kept, color=COLOURS[4], linestyle=":", linewidth=1.5, label="not retrained")
    axes.set_xlim(0.5, max(len(seed["budgets"][budget]["initial"]["epochs"]["test_auc"]) for seed in seeds) + 0.5)
    axes.xaxis.get_major_locator().set_params(integer=True)


def limits(seeds: list[dict[str, Any]], budgets: list[str], metric: str) -> tuple[float, float]:
    """The range of the tickets once they are settled, and of the dense model at its best, which overfits later."""
    ways = [seed["budgets"][budget] for seed in seeds for budget in budgets]
    curves = [one[rewind]["epochs"][f"test_{metric}"] for one in ways for rewind in REWINDS]
    shown = [value for curve in curves for value in (*curve[SETTLED - 1 :], curve[-1])]
    shown += [one["not retrained"]["test"][metric] for one in ways] + [seed["dense"]["test"][metric] for seed in seeds]
    room = max(0.15 * (max(shown) - min(shown)), 1e-3)
    return min(shown) - room, max(shown) + room


def mean_curve(trainings: list[dict[str, Any]], metric: str) -> tuple[list[int], list[float], list[float]]:
    """Epochs that all seeds have, with the mean and the standard deviation of the test metric over seeds."""
    series = [training["epochs"][f"test_{metric}"] for training in trainings]
    columns = list(zip(*series, strict=False))
    spreads = [stdev(column) if len(column) > 1 else 0.0 for column in columns]
    return list(range(1, len(columns) + 1)), [fmean(column) for column in columns], spreads


def page(settings: PaperSettings) -> str:
    results = read_seeds(settings.results / PART, SOURCES)
    if not results:
        return NOT_RUN_YET
    first = next(iter(results.values()))[0]
    epochs, dense_epochs = (
        len(training["epochs"]["train_loss"])
        for training in (next(iter(first["budgets"].values()))["initial"], first["dense"])
    )
    sections = [
        f"""The same mask, trained for {epochs} epochs from different weights, and the dense model trained for
{dense_epochs}; test AUC of the epoch best on validation. *Not retrained* is the pruned model as the search had it when
its count fell to the budget. It has no running mean of weights, so the others go without here, too, and differ a little
from those in the tables above. Figures are framed by the tickets from epoch {SETTLED} on; an arrow tells where the
dense model leaves them.

The paper shows Criteo and Avazu, as curves without numbers: the initial weights are best; random ones and no
retraining lie behind them, both ahead of the dense model."""
    ]
    for source, seeds in results.items():
        sections += [
            picture(settings, f"{PART}_{source}", f"Test AUC and logloss over epochs on {DATASET_NAMES[source]}"),
            _table(seeds),
            _conclusion(seeds),
            provenance(read_result(_path(settings, source))),
        ]
    return "\n\n".join(filter(None, sections))


def _table(seeds: list[dict[str, Any]]) -> str:
    rows = []
    for budget in seeds[0]["budgets"]:
        of_budget = [seed["budgets"][budget] for seed in seeds if budget in seed["budgets"]]
        cells = [mean_sd([one[way]["test"]["auc"] for one in of_budget]) for way in (*REWINDS, "not retrained")]
        last = max(one[way]["best_epoch"] for one in of_budget for way in REWINDS)
        rows.append([budget, *cells, last])
    dense = mean_sd([seed["dense"]["test"]["auc"] for seed in seeds])
    last = max(seed["dense"]["best_epoch"] for seed in seeds)
    rows.append([f"{seeds[0]['dense']['num_parameters']:,} (dense)", dense, *[""] * 3, last])
    return table(["parameters", *(NAMES[rewind] for rewind in REWINDS), "not retrained", "latest best epoch"], rows)


def claims(settings: PaperSettings) -> list[Claim]:
    """Per file and size, one way against another, paired over seeds."""
    sizes = {
        f"{DATASET_NAMES[source]} at {budget}": (seeds, budget)
        for source, seeds in read_seeds(settings.results / PART, SOURCES).items()
        for budget in seeds[0]["budgets"]
    }
    if not sizes:
        return []
    found = []
    for way, other, said in (
        ("initial", "random", "Retraining from the initial weights is better than from random ones"),
        ("random", "dense", "From random weights, too, a ticket is better than the dense model"),
        ("initial", "not retrained", "Retraining is better than none"),
        ("not retrained", "dense", "Even without it a ticket is better than the dense model"),
    ):
        gains = {
            name: [_auc(seed, budget, way) - _auc(seed, budget, other) for seed in seeds]
            for name, (seeds, budget) in sizes.items()
        }
        here = "; ".join(f"{name} {signed(each)}" for name, each in gains.items())
        found.append(Claim(said, holds(map(is_better, gains.values())), here))
    arrived = {
        name: [[_arrival(seed["budgets"][budget][way]) for seed in seeds] for way in ("initial", "random")]
        for name, (seeds, budget) in sizes.items()
    }
    told = [f"{name} {mean_sd(own, 1)} instead of {mean_sd(other, 1)}" for name, (own, other) in arrived.items()]
    faster = [is_better([b - a for a, b in zip(own, other, strict=True)]) for own, other in arrived.values()]
    here = f"Epochs until validation AUC is within {NEAR} of its best: {'; '.join(told)}"
    found.insert(1, Claim("It is faster", holds(faster), here))
    return found


def _arrival(training: dict[str, Any]) -> float:
    """The first epoch near the best on validation."""
    curve = training["epochs"]["validation_auc"]
    return float(next(epoch for epoch, auc in enumerate(curve, 1) if auc >= max(curve) - NEAR))


def _auc(seed: dict[str, Any], budget: str, way: str) -> float:
    found = seed["dense"] if way == "dense" else seed["budgets"][budget][way]
    return float(found["test"]["auc"])


def _conclusion(seeds: list[dict[str, Any]]) -> str:
    """Initial against random and last weights, paired over seeds and budgets, in words."""
    parts = []
    for other in ("random", "final", "not retrained"):
        gains = [
            ways["initial"]["test"]["auc"] - ways[other]["test"]["auc"]
            for seed in seeds
            for ways in seed["budgets"].values()
        ]
        won = sum(gain > 0 for gain in gains)
        name = NAMES.get(other, "no retraining")
        parts.append(f"{fmean(gains):+.4f} against {name} (above in {won} of {len(gains)} pairs)")
    return f"From the initial weights test AUC is, on average, {'; '.join(parts)}."


def _path(settings: PaperSettings, source: str) -> Path:
    return settings.results / PART / f"{source}.json"
