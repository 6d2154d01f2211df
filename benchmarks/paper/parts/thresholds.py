"""How thresholds are learned: the training loss with and without PEP, and who moves a threshold, loss or pressure.

Every raw threshold is a sum of two parts. Under `plan` they are the clock (pressure) and the deviation (loss); under
`decay` what weight decay and what the loss's gradient have moved it by, kept apart step by step (`measures.AdamParts`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paper.figures.thresholds import NAMES, PRESSURES, draw_losses, draw_parts, draw_swapped
from paper.markdown import NOT_RUN_YET, Claim, holds, mean_sd, picture, provenance, table
from paper.result_files import compute_missing_seeds, read_result, read_seeds
from paper.searches import SOURCES, RecordedConfig, search, search_config
from paper.settings import DATASET_NAMES, PaperSettings
from paper.trainings import DENSE_EPOCHS, curve, train_dense, training_config
from paper.verdicts.differences import is_worse, signed
from thresher.embeddings.pep import Pressure
from thresher.report.figures import new_figure, page_style, save_figure

TITLE = "How thresholds are learned"
PUBLISHED = "Figure 11"
PART = "thresholds"
SHOWN_SHARES = (0.5, 0.2, 0.12)
"""How much is left when the table of the page looks; the published search stalls at a tenth."""


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
            settings, _path(settings, source), RecordedConfig(searches=searches, trainings=trainings), of_seed
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
            left.set_ylabel("part of the raw threshold")
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
    sections = [
        """FM, D = 64. The paper shows the training loss with and without PEP on MovieLens-1M
and Criteo, finds it much lower with PEP, and takes that for the reason why thresholds rise: the loss wants them to. On
the small Criteo file decay starts at −15, not −150, and its thresholds learn faster, in proportion to the fewer
steps.""",
        picture(settings, f"{PART}_loss", "Training and validation loss with and without PEP"),
        _losses(results),
        _lower_or_higher(results),
        """**Who moves the thresholds.** Every raw threshold is the sum of where pressure brought it from its start, and
of what the loss moved it by.
*Moved by the loss* is the mean change of a kept entry's threshold due to the loss, as a share of the mean threshold.
Under the plan that is no more than an upper bound: what all deviations have in common the clock takes back, so that
only how far they lie apart (5 … 95 %) decides which entries stay. *Swapped* is the share of the kept entries that are
not among as many of the largest |v|: what learned thresholds change about the mask. With thresholds that are all alike
it would be 0. Whether that makes better tickets is shown by [the deviation fixed at 0](#the-deviation-fixed-at-0).""",
        _parts(results),
        *(
            picture(settings, f"{PART}_parts_{source}", f"Pressure and loss, {DATASET_NAMES[source]}")
            for source in results
        ),
        provenance(*(read_result(_path(settings, source)) for source in results)),
    ]
    return "\n\n".join(filter(None, sections))


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


def _lower_or_higher(results: Mapping[str, list[dict[str, Any]]]) -> str:
    """The paper's reading of the training loss, checked: at the search's last epoch, and on validation at its best."""

    def told(seeds: list[dict[str, Any]], pressure: Pressure) -> str:
        lowest = [[min(seed[name]["validation_logloss"]) for seed in seeds] for name in (pressure, "dense")]
        best = [seed[pressure] for seed in seeds]
        kept = [one["kept"][one["validation_logloss"].index(min(one["validation_logloss"]))] for one in best]
        gap = signed([own - other for own, other in zip(*lowest, strict=True)])
        return f"{pressure} {signed(_loss_gaps(seeds, pressure))} and {gap}, with {mean_sd(kept, 0)} entries kept then"

    found = [
        f"{DATASET_NAMES[source]}: {'; '.join(told(seeds, pressure) for pressure in PRESSURES)}"
        for source, seeds in results.items()
    ]
    return (
        "With PEP minus without, training loss at the search's last epoch (without PEP after as many) and best "
        f"validation loss of any epoch: {'. '.join(found)}."
    )


def _loss_gaps(seeds: list[dict[str, Any]], pressure: Pressure) -> list[float]:
    """Training loss with PEP minus that without, after as many epochs as both have, seed by seed."""
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
    here = f"With PEP minus without: {'; '.join(f'{name} {signed(each)}' for name, each in gaps.items())}"
    return [Claim("The training loss is lower with PEP", holds(map(is_worse, gaps.values())), here)] if gaps else []


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
    """What was measured at the first epoch's end with no more than this share of the first count left."""
    for count, part in zip(searched["kept"], searched["parts"], strict=True):
        if count <= share * searched["kept"][0] and part is not None and "kept" in part:
            return dict(part)
    return None


def _rounded(part: Any) -> Any:
    """The same with six digits: a result file is read by people, too."""
    if isinstance(part, dict):
        return {name: _rounded(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_rounded(value) for value in part]
    return float(f"{part:.6g}") if isinstance(part, float) else part


def _path(settings: PaperSettings, source: str) -> Path:
    return settings.results / PART / f"{source}.json"
