"""The lottery ticket: do the starting weights of retraining matter, and is retraining needed?

AUC and logloss of the test split over epochs: the same mask trained from the initial, from random and from the search's
final weights; the pruned model without retraining; and the dense model. This is the only figure with test curves;
nothing is chosen by them.
"""

from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from paper.figures.annotations import ANNOTATION_COLOUR, annotate_out_of_range
from paper.markdown import NOT_RUN_YET, Claim, holds, mean_sd, paragraphs, picture, provenance, table
from paper.result_files import compute_missing_seeds, read_result, read_seeds
from paper.searches import SOURCES, RecordedConfig, search, search_config
from paper.settings import DATASET_NAMES, PaperSettings
from paper.trainings import DENSE_EPOCHS, RETRAIN_EPOCHS, curve, retrain, train_dense, training_config
from paper.verdicts.differences import is_better, signed
from thresher.report.figures import COLOURS, new_figure, page_style, save_figure
from thresher.search.ticket import Rewind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Lottery ticket"
PUBLISHED = "Figure 8; Figure 9, the same on Avazu, is not reproduced"
MEASURED = """Test AUC of tickets that are retrained from the initial weights, from random weights and from the final
weights of the search, of tickets without retraining, and of the dense model. The paper shows curves for Criteo and
Avazu without numbers: the initial weights are best, then random weights and no retraining, and both are better than the
dense model."""
PART = "lottery_ticket"
REWINDS: tuple[Rewind, ...] = ("initial", "random", "final")
NAMES = {"initial": "initial weights", "random": "random weights", "final": "final weights of the search"}
RETRAINED = {"movielens-1m": ("25k", "6500"), "criteo": ("10k", "2k")}
LOOKS = {"initial": ("-", ""), "random": ("-.", ""), "final": ("-", "^")}
"""Line style and marker, so that lines can be distinguished in grey print."""
SETTLED = 10
"""The first epoch of a ticket that determines the limits of a figure; earlier values are far off."""
TOLERANCE = 0.001
"""A training has converged when its validation AUC is at most this far below its best."""


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
        recorded = RecordedConfig(searches=(config,), trainings=trainings)
        compute_missing_seeds(settings, settings.result_path(PART, source), recorded, of_seed)


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
    """Return the range of the tickets from epoch `SETTLED` on and of the dense model's best epoch."""
    found = [seed["budgets"][budget] for seed in seeds for budget in budgets]
    curves = [one[rewind]["epochs"][f"test_{metric}"] for one in found for rewind in REWINDS]
    shown = [value for curve in curves for value in (*curve[SETTLED - 1 :], curve[-1])]
    shown += [one["not retrained"]["test"][metric] for one in found] + [seed["dense"]["test"][metric] for seed in seeds]
    room = max(0.15 * (max(shown) - min(shown)), 1e-3)
    return min(shown) - room, max(shown) + room


def mean_curve(trainings: list[dict[str, Any]], metric: str) -> tuple[list[int], list[float], list[float]]:
    """Return the epochs common to all seeds, with mean and standard deviation of the test metric."""
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
        f"""Tickets are retrained for {epochs} epochs and the dense model is trained for {dense_epochs}. The tables show
test AUC at the epoch that is best on validation. *Not retrained* is the pruned model at the moment when the search
reaches the budget. It has no moving average of the weights, so no average is used here, and AUCs differ slightly from
the tables above. The limits of the figures follow the tickets from epoch {SETTLED} on; an arrow marks where the dense
model leaves the panel."""
    ]
    for source, seeds in results.items():
        sections += [
            picture(settings, f"{PART}_{source}", f"Test AUC and logloss over epochs on {DATASET_NAMES[source]}"),
            _table(seeds),
            _conclusion(seeds),
            provenance(read_result(settings.result_path(PART, source))),
        ]
    return paragraphs(*sections)


def _table(seeds: list[dict[str, Any]]) -> str:
    rows = []
    for budget in seeds[0]["budgets"]:
        found = [seed["budgets"][budget] for seed in seeds if budget in seed["budgets"]]
        cells = [mean_sd([one[start]["test"]["auc"] for one in found]) for start in (*REWINDS, "not retrained")]
        last = max(one[rewind]["best_epoch"] for one in found for rewind in REWINDS)
        rows.append([budget, *cells, last])
    dense = mean_sd([seed["dense"]["test"]["auc"] for seed in seeds])
    last = max(seed["dense"]["best_epoch"] for seed in seeds)
    rows.append([f"{seeds[0]['dense']['num_parameters']:,} (dense)", dense, *[""] * 3, last])
    return table(["parameters", *(NAMES[rewind] for rewind in REWINDS), "not retrained", "latest best epoch"], rows)


def claims(settings: PaperSettings) -> list[Claim]:
    """Compare the starting weights for each data set and size, paired by seed."""
    sizes = {
        f"{DATASET_NAMES[source]} at {budget}": (seeds, budget)
        for source, seeds in read_seeds(settings.results / PART, SOURCES).items()
        for budget in seeds[0]["budgets"]
    }
    if not sizes:
        return []
    found = []
    for start, other, statement, meaning in (
        ("initial", "random", "Retraining from the initial weights is better than from random weights",
         {"no": "No effect of the initial weights on the final AUC was found."}),
        ("random", "dense", "A ticket retrained from random weights is better than the dense model",
         {"in part": "It is on the small Criteo file, where the dense model overfits."}),
        ("initial", "not retrained", "Retraining improves a ticket", {}),
        ("not retrained", "dense", "A ticket without retraining is better than the dense model", {}),
    ):  # fmt: skip
        gains = {
            name: [_auc(seed, budget, start) - _auc(seed, budget, other) for seed in seeds]
            for name, (seeds, budget) in sizes.items()
        }
        evidence = "; ".join(f"{name} {signed(each)}" for name, each in gains.items())
        verdict = holds(map(is_better, gains.values()))
        found.append(Claim(statement, verdict, evidence, meaning.get(verdict, "")))
    epochs = {
        name: [
            [_convergence_epoch(seed["budgets"][budget][start]) for seed in seeds] for start in ("initial", "random")
        ]
        for name, (seeds, budget) in sizes.items()
    }
    texts = [f"{name} {mean_sd(own, 1)} instead of {mean_sd(other, 1)}" for name, (own, other) in epochs.items()]
    faster = [is_better([b - a for a, b in zip(own, other, strict=True)]) for own, other in epochs.values()]
    evidence = f"Epochs until validation AUC is within {TOLERANCE} of its best: {'; '.join(texts)}"
    found.insert(1, Claim("Retraining from the initial weights converges faster", holds(faster), evidence))
    return found


def _convergence_epoch(training: dict[str, Any]) -> float:
    """Return the first epoch whose validation AUC is close to the best."""
    curve = training["epochs"]["validation_auc"]
    return float(next(epoch for epoch, auc in enumerate(curve, 1) if auc >= max(curve) - TOLERANCE))


def _auc(seed: dict[str, Any], budget: str, start: str) -> float:
    found = seed["dense"] if start == "dense" else seed["budgets"][budget][start]
    return float(found["test"]["auc"])


def _conclusion(seeds: list[dict[str, Any]]) -> str:
    """Compare the initial weights with the alternatives, averaged over seeds and budgets."""
    texts = []
    for other in ("random", "final", "not retrained"):
        gains = [
            found["initial"]["test"]["auc"] - found[other]["test"]["auc"]
            for seed in seeds
            for found in seed["budgets"].values()
        ]
        name = NAMES.get(other, "no retraining")
        higher = sum(gain > 0 for gain in gains)
        texts.append(f"{fmean(gains):+.4f} against {name} (higher in {higher} of {len(gains)} pairs)")
    return f"Mean test AUC of retraining from the initial weights: {'; '.join(texts)}."
