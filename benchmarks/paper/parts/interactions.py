"""Interaction matrices: how strongly features of two fields meet, before pruning, after it, and the difference.

Entry (f, g) is the mean of `|⟨v_a, v_b⟩|` over all features a of field f and b of field g that training saw, divided by
the largest such mean of the dense model: one measure for before and after. FM multiplies no two features of one field,
so the diagonal is empty.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paper.markdown import NOT_RUN_YET, Claim, collapsed, holds, mean_sd, picture, provenance, table
from paper.result_files import compute_missing_seeds
from paper.searches import RecordedConfig, search, search_config
from paper.settings import PaperSettings
from paper.trainings import DENSE_EPOCHS, RETRAIN_EPOCHS, retrain, train_dense, training_config
from thresher._internal.files import read_json
from thresher.experiment.retrain import Trained
from thresher.report.figures import new_figure, page_style, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Interaction matrices"
PUBLISHED = "Figure 5"
PART = "interactions"
SOURCE = "movielens-1m"
STAYED = 0.9
"""Pairs that have so much of their strength left have stayed."""
BUDGETS = ("25k", "6500")


def run(settings: PaperSettings) -> None:
    def of_seed(seed: int) -> dict[str, Any]:
        found = search(settings, SOURCE, seed=seed)
        sizes, seen = found.table.schema.field_sizes, torch.from_numpy(found.table.feature_counts > 0)
        dense = interaction_matrix(_vectors(train_dense(settings, found)), sizes, seen)
        result: dict[str, Any] = {"fields": list(found.table.schema.field_names), "dense": _plain(dense), "pruned": {}}
        for budget in (budget for budget in BUDGETS if budget in found.tickets):
            pruned = interaction_matrix(_vectors(retrain(settings, found, budget)), sizes, seen)
            result["pruned"][budget] = _plain(pruned)
        return result

    config = search_config(settings, SOURCE)
    trainings = tuple(training_config(settings, config, epochs) for epochs in (DENSE_EPOCHS, RETRAIN_EPOCHS))
    compute_missing_seeds(settings, _path(settings), RecordedConfig(searches=(config,), trainings=trainings), of_seed)


@torch.no_grad()
def _vectors(trained: Trained) -> Tensor:
    """The vector of every feature `[N, D]`, whatever form the table has."""
    embedding = trained.model.embedding
    vectors: Tensor = embedding(torch.arange(embedding.num_features))
    return vectors


def interaction_matrix(vectors: Tensor, field_sizes: Sequence[int], seen: Tensor) -> NDArray[np.float64]:
    """Mean `|⟨v_a, v_b⟩|` `[F, F]` for each pair of fields over the features `seen` `[N]`; NaN on the diagonal."""
    fields = [
        own[kept].double()
        for own, kept in zip(vectors.split(list(field_sizes)), seen.split(list(field_sizes)), strict=True)
    ]
    matrix = np.full((len(fields), len(fields)), np.nan)
    for at, one in enumerate(fields):
        for other in range(at + 1, len(fields)):
            if len(one) and len(fields[other]):
                matrix[at, other] = matrix[other, at] = float((one @ fields[other].T).abs().mean())
    return matrix


def draw(settings: PaperSettings) -> list[Path]:
    if not _path(settings).exists():
        return []
    seeds = list(read_json(_path(settings))["seeds"].values())
    written: list[Path] = []
    # one measure, one scale: what is equal looks the same in every figure
    limits = (0.0, max(1.0, *(float(np.nanmax(_mean(seeds, budget))) for budget in seeds[0]["pruned"])))
    before = _mean(seeds, None)
    afters = {budget: _mean(seeds, budget) for budget in seeds[0]["pruned"]}
    largest = max(0.05, *(float(np.nanmax(np.abs(after - before))) for after in afters.values()))
    for budget, after in afters.items():
        with page_style():
            figure = new_figure(6.9, 3.7)
            figure.suptitle("MovieLens-1M, FM", x=0.01, ha="left", fontsize=10, fontweight="bold")
            panels = figure.subplots(1, 3, sharey=True)
            _draw_matrix(panels[0], before, seeds[0]["fields"], "dense", "Blues", limits)
            image = _draw_matrix(panels[1], after, seeds[0]["fields"], f"{budget} kept, retrained", "Blues", limits)
            figure.colorbar(
                image,
                ax=list(panels[:2]),
                location="bottom",
                shrink=0.5,
                aspect=30,
                label="the dense model's largest = 1",
            )
            change = _draw_matrix(
                panels[2], after - before, seeds[0]["fields"], "difference", "PuOr", (-largest, largest)
            )
            figure.colorbar(change, ax=panels[2], location="bottom", shrink=0.9, aspect=20, label="after − before")
            written += save_figure(figure, settings.images / f"{PART}_{budget}")
    return written


def _draw_matrix(
    axes: "Axes", matrix: NDArray[np.float64], fields: list[str], title: str, colours: str, limits: tuple[float, float]
) -> Any:
    image = axes.imshow(matrix, cmap=colours, vmin=limits[0], vmax=limits[1])
    axes.set_xticks(range(len(fields)), fields, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
    axes.set_yticks(range(len(fields)), fields, fontsize=8)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.set_title(title)
    axes.set_facecolor("#dddddd")  # no pair, which is not the same as a weak one
    if len(fields) <= 8:
        for row, column in zip(*np.nonzero(np.isfinite(matrix)), strict=True):
            value = float(matrix[row, column])
            colour = "white" if abs(value) > 0.6 * limits[1] else "black"
            told = f"{value:.2f}".replace("0.", ".").replace("-", "−")
            axes.text(column, row, told, ha="center", va="center", fontsize=6.5, color=colour)
    return image


def page(settings: PaperSettings) -> str:
    if not _path(settings).exists():
        return NOT_RUN_YET
    content = read_json(_path(settings))
    seeds = list(content["seeds"].values())
    budgets, fields = list(seeds[0]["pruned"]), seeds[0]["fields"]
    columns = [_scaled(seeds, budget) for budget in (None, *budgets)]
    rows = [
        [f"{fields[row]} × {fields[column]}", *(mean_sd([one[row, column] for one in of], 2) for of in columns)]
        for row, column in _pairs(_mean(seeds, None))
    ]
    return "\n\n".join(
        [
            f"""Each entry is the mean of `|⟨v_a, v_b⟩|` over the features of two fields, divided by that of the dense
model's largest pair: FM on MovieLens-1M, mean over seeds ({len(seeds)}). *Dense* is the model before pruning; the other
columns are retrained tickets. Features that training never saw are left out; FM multiplies no two features of one
field, so there is no diagonal. The paper shows three heat maps without numbers and reads from
them that weak pairs fade while strong ones stay.""",
            *[
                picture(settings, f"{PART}_{budget}", f"Interaction matrices at {budget} parameters")
                for budget in budgets
            ],
            collapsed("all pairs of fields", table(["pair", "dense", *budgets], rows)),
            f"Of the strength they had before, {_fading(seeds)}.",
            provenance(content),
        ]
    )


def claims(settings: PaperSettings) -> list[Claim]:
    if not _path(settings).exists():
        return []
    seeds = list(read_json(_path(settings))["seeds"].values())
    found = []
    for budget in seeds[0]["pruned"]:
        strong, weak = (fmean(half) for half in _kept_halves(seeds, budget))
        found += [weak < strong, strong >= STAYED]
    said = "Weak interactions of fields fade, strong ones stay"
    return [Claim(said, holds(found), f"FM on MovieLens-1M, of their strength {_fading(seeds)}")]


def _fading(seeds: list[dict[str, Any]]) -> str:
    """Whether weak pairs lose more than strong ones: the paper's reading, checked."""
    told = []
    for budget in seeds[0]["pruned"]:
        strong, weak = (mean_sd([100 * share for share in half], 0) for half in _kept_halves(seeds, budget))
        told.append(f"at {budget} the stronger half of the pairs keeps {strong} %, the weaker {weak} %")
    return "; ".join(told)


def _kept_halves(seeds: list[dict[str, Any]], budget: str) -> tuple[list[float], list[float]]:
    """What the stronger and the weaker half of the pairs have left, seed by seed."""
    kept = [
        _kept_strength(before, after)
        for before, after in zip(_scaled(seeds, None), _scaled(seeds, budget), strict=True)
    ]
    return [strong for strong, _ in kept], [weak for _, weak in kept]


def _kept_strength(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[float, float]:
    """What the stronger and the weaker half of the pairs have left, as a share of what they had."""
    pairs = [pair for pair in _pairs(before) if before[pair] > 0]
    half = len(pairs) // 2
    strong, weak = (fmean(after[pair] / before[pair] for pair in part) for part in (pairs[:half], pairs[half:]))
    return strong, weak


def _pairs(before: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs of fields that have features, the strongest first."""
    found = [(row, column) for row in range(len(before)) for column in range(row + 1, len(before))]
    return sorted((pair for pair in found if np.isfinite(before[pair])), key=lambda pair: -before[pair])


def _mean(seeds: list[dict[str, Any]], budget: str | None) -> NDArray[np.float64]:
    return np.mean(_scaled(seeds, budget), axis=0)


def _scaled(seeds: list[dict[str, Any]], budget: str | None) -> list[NDArray[np.float64]]:
    """The dense matrices (None) or the pruned ones, each as a multiple of its seed's largest dense entry."""
    matrices = [np.array(seed["dense"] if budget is None else seed["pruned"][budget], float) for seed in seeds]
    scales = [np.nanmax(np.array(seed["dense"], float)) for seed in seeds]
    return [matrix / scale for matrix, scale in zip(matrices, scales, strict=True)]


def _plain(matrix: NDArray[np.float64]) -> list[list[float | None]]:
    return [[round(float(value), 8) if np.isfinite(value) else None for value in row] for row in matrix]


def _path(settings: PaperSettings) -> Path:
    return settings.results / PART / f"{SOURCE}.json"
