"""How thresholds are learned: the training loss with and without PEP, and what moves a threshold.

Every raw threshold is a sum of two parts. With PEP plan they are the clock (pressure) and the deviation (loss). With
PEP decay they are the movements due to weight decay and due to the gradient of the loss (`measures.AdamParts`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paper.figures.thresholds import NAMES, PRESSURES, draw_losses, draw_parts, draw_swapped
from paper.markdown import NOT_RUN_YET, Claim, holds, mean_sd, paragraphs, picture, provenance, table
from paper.result_files import compute_missing_seeds, read_result, read_seeds
from paper.searches import SOURCES, RecordedConfig, search, search_config
from paper.settings import DATASET_NAMES, PaperSettings
from paper.trainings import DENSE_EPOCHS, curve, train_dense, training_config
from paper.verdicts.differences import is_worse, signed
from thresher.embeddings.pep import Pressure
from thresher.report.figures import new_figure, page_style, save_figure

TITLE = "How thresholds are learned"
PUBLISHED = "Figure 11"
MEASURED = """The training loss of FM with and without PEP (D = 64), and how much of each threshold comes from the loss.
The paper finds a much lower training loss with PEP on MovieLens-1M and Criteo and concludes that the loss raises the
thresholds. On the small Criteo file decay starts at −15 instead of −150, and its thresholds have a higher learning
rate, in proportion to the smaller number of steps."""
PART = "thresholds"
SHOWN_SHARES = (0.5, 0.2, 0.12)
"""Kept shares shown in the table; the published search stalls at a tenth."""


def run(settings: PaperSettings) -> None:
    for source in SOURCES:

        def of_seed(seed: int, source: str = source) -> dict[str, Any]:
            result: dict[str, Any] = {}
            for pressure in PRESSURES:
                found = search(settings, source, seed=seed, pressure=pressure)
                result[pressure] = {
                    "train_loss": [round(record["train_loss"], 6) for record in found.records],
                    "validation_logloss": [record["validation"]["logloss"] for record in found.records],
                    "kept": [record["num_kept"] for record in found.records],
                    "parts": [_rounded(record["thresholds"]) for record in found.records],
                }
            dense = curve(train_dense(settings, search(settings, source, seed=seed)))["epochs"]
            return result | {"dense": {name: dense[name] for name in ("train_loss", "validation_logloss")}}

        searches = tuple(search_config(settings, source, pressure=pressure) for pressure in PRESSURES)
        trainings = (training_config(settings, searches[-1], DENSE_EPOCHS),)
        compute_missing_seeds(
            settings,
            settings.result_path(PART, source),
            RecordedConfig(searches=searches, trainings=trainings),
            of_seed,
        )


def draw(settings: PaperSettings) -> list[Path]:
    results = read_seeds(settings.results / PART, SOURCES)
    if not results:
        return []
    with page_style():
        figure = new_figure(6.9, 3.2)
        panels = figure.subplots(1, len(results), squeeze=False)[0]
        for axes, (source, seeds) in zip(panels, results.items(), strict=True):
            draw_losses(axes, seeds)
            axes.set_title(f"{DATASET_NAMES[source]}, FM", loc="left")
        panels[0].set_ylabel("loss")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
        written = list(save_figure(figure, settings.images / f"{PART}_loss"))
        for source, seeds in results.items():
            figure = new_figure(6.9, 2.9)
            left, middle, right = figure.subplots(1, 3)
            draw_parts(left, seeds, "decay")
            draw_parts(middle, seeds, "plan")
            left.set_ylabel("component of the raw threshold")
            draw_swapped(right, seeds)
            handles, labels = left.get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
            figure.suptitle(f"{DATASET_NAMES[source]}, FM", x=0.01, ha="left", fontsize=10, fontweight="bold")
            written += save_figure(figure, settings.images / f"{PART}_parts_{source}")
        return written


def page(settings: PaperSettings) -> str:
    results = read_seeds(settings.results / PART, SOURCES)
    if not results:
        return NOT_RUN_YET
    return paragraphs(
        picture(settings, f"{PART}_loss", "Training and validation loss with and without PEP"),
        _losses(results),
        _loss_differences(results),
        """**What moves the thresholds.** Every raw threshold is the sum of two components: the pressure (start value
plus weight decay, or the clock) and the loss. *Moved by the loss* is the mean change of the thresholds of kept entries
due to the loss, as a share of the mean threshold. For PEP plan it is an upper bound: the clock compensates what all
deviations have in common, so only their spread (5 … 95 %) decides which entries are kept. *Swapped* is the share of the
kept entries that are not among the largest |v| of the same number, i.e. the effect of learned thresholds on the mask.
With equal thresholds it would be 0. [Deviation fixed at 0](#deviation-fixed-at-0) shows whether this gives better
tickets.""",
        _parts(results),
        *(
            picture(settings, f"{PART}_parts_{source}", f"Pressure and loss, {DATASET_NAMES[source]}")
            for source in results
        ),
        provenance(*(read_result(settings.result_path(PART, source)) for source in results)),
    )


def _losses(results: Mapping[str, list[dict[str, Any]]]) -> str:
    rows = []
    for source, seeds in results.items():
        for name in ("dense", *PRESSURES):
            curves = [seed[name] for seed in seeds]
            epochs = min(len(one["train_loss"]) for one in curves)
            rows.append(
                [f"{DATASET_NAMES[source]}, {NAMES[name]}", epochs]
                + [mean_sd([one["train_loss"][at] for one in curves]) for at in (0, (epochs - 1) // 2, epochs - 1)]
                + [mean_sd([min(one["validation_logloss"]) for one in curves])]
            )
    heads = ["", "epochs", "training loss, first", "middle", "last epoch", "best validation"]
    return table(heads, rows)


def _loss_differences(results: Mapping[str, list[dict[str, Any]]]) -> str:
    """Compare training loss at the last epoch and the best validation loss with training without PEP."""

    def text(seeds: list[dict[str, Any]], pressure: Pressure) -> str:
        lowest = [[min(seed[name]["validation_logloss"]) for seed in seeds] for name in (pressure, "dense")]
        best = [seed[pressure] for seed in seeds]
        kept = [one["kept"][one["validation_logloss"].index(min(one["validation_logloss"]))] for one in best]
        gap = signed([own - other for own, other in zip(*lowest, strict=True)])
        return f"{pressure} {signed(_loss_gaps(seeds, pressure))} and {gap} ({mean_sd(kept, 0)} entries kept)"

    found = [
        f"{DATASET_NAMES[source]}: {'; '.join(text(seeds, pressure) for pressure in PRESSURES)}"
        for source, seeds in results.items()
    ]
    return (
        "Loss with PEP minus loss without PEP, first for training at the last epoch of the search (same number of "
        "epochs without PEP), then for the best validation loss of any epoch, with the number of entries kept at that "
        f"epoch: {'. '.join(found)}."
    )


def _loss_gaps(seeds: list[dict[str, Any]], pressure: Pressure) -> list[float]:
    """Return the training loss with PEP minus without after the same number of epochs, by seed."""
    epochs = [min(len(seed[name]["train_loss"]) for name in (pressure, "dense")) for seed in seeds]
    return [
        seed[pressure]["train_loss"][at - 1] - seed["dense"]["train_loss"][at - 1]
        for seed, at in zip(seeds, epochs, strict=True)
    ]


def claims(settings: PaperSettings) -> list[Claim]:
    gaps = {
        f"{DATASET_NAMES[source]}, {pressure}": _loss_gaps(seeds, pressure)
        for source, seeds in read_seeds(settings.results / PART, SOURCES).items()
        for pressure in PRESSURES
    }
    if not gaps:
        return []
    verdict = holds(map(is_worse, gaps.values()))
    evidence = f"With PEP minus without: {'; '.join(f'{name} {signed(each)}' for name, each in gaps.items())}"
    meaning = "Pruning raises the training loss, as expected of a smaller model; it can lower the validation loss."
    return [Claim("The training loss is lower with PEP", verdict, evidence, meaning if verdict == "no" else "")]


def _parts(results: Mapping[str, list[dict[str, Any]]]) -> str:
    rows = []
    for source, seeds in results.items():
        for pressure in PRESSURES:
            for share in SHOWN_SHARES:
                found = [part for seed in seeds if (part := part_at(seed[pressure], share)) is not None]
                if found:
                    kept = [part["kept"] for part in found]
                    rows.append(
                        [
                            f"{DATASET_NAMES[source]}, {pressure}, {share:.0%} kept",
                            mean_sd([one["raw_pressure"][1] for one in kept], 2),
                            " … ".join(mean_sd([one["raw_loss"][at] for one in kept], 2, sign="+") for at in (0, 2)),
                            mean_sd([100 * one["moved_by_loss"] for one in kept], 0),
                            mean_sd([100 * part["swapped_share"] for part in found], 1),
                        ]
                    )
    return table(["", "pressure (median)", "loss (5 … 95 %)", "moved by the loss, %", "swapped, %"], rows)


def part_at(searched: Mapping[str, Any], share: float) -> dict[str, Any] | None:
    """Return the components at the first epoch that ends with at most this share of the initial count."""
    for count, part in zip(searched["kept"], searched["parts"], strict=True):
        if count <= share * searched["kept"][0] and part is not None and "kept" in part:
            return dict(part)
    return None


def _rounded(part: Any) -> Any:
    """Round all floats to six digits, so that result files stay readable."""
    if isinstance(part, dict):
        return {name: _rounded(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_rounded(value) for value in part]
    return float(f"{part:.6g}") if isinstance(part, float) else part
