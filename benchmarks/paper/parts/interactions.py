"""Interaction matrices: the strength of field interactions before pruning, after it, and the difference.

Entry (f, g) is the mean of `|⟨v_a, v_b⟩|` over all features a of field f and b of field g that occur in training,
divided by the largest mean of the dense model. FM has no interactions within a field, so the diagonal is empty."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paper.markdown import NOT_RUN_YET, Claim, collapsed, holds, mean_sd, paragraphs, picture, provenance, table
from paper.result_files import compute_missing_seeds
from paper.searches import RecordedConfig, search, search_config
from paper.settings import PaperSettings
from paper.trainings import DENSE_EPOCHS, RETRAIN_EPOCHS, retrain, train_dense, training_config
from thresher._internal.storage.files import read_json
from thresher.experiment.retrain import TrainedModel
from thresher.report.figures import new_figure, page_style, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLE = "Interaction matrices"
PUBLISHED = "Figure 5"
MEASURED = """The strength of the interaction between each pair of fields before and after pruning, for FM on
MovieLens-1M. The paper shows three heat maps without numbers and concludes that weak interactions fade while strong
ones stay."""
PART = "interactions"
SOURCE = "movielens-1m"
MIN_STAYED = 0.9
"""Share of its strength that an interaction must keep to count as unchanged."""
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
    compute_missing_seeds(
        settings, settings.result_path(PART, SOURCE), RecordedConfig(searches=(config,), trainings=trainings), of_seed
    )


@torch.no_grad()
def _vectors(trained: TrainedModel) -> Tensor:
    """Return the vectors of all features `[N, D]`, for any kind of table."""
    embedding = trained.model.embedding
    vectors: Tensor = embedding(torch.arange(embedding.num_features))
    return vectors


def interaction_matrix(vectors: Tensor, field_sizes: Sequence[int], seen: Tensor) -> NDArray[np.float64]:
    """Return the mean `|⟨v_a, v_b⟩|` of each pair of fields `[F, F]` over `seen` features `[N]` (NaN: diagonal)."""
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
    if not settings.result_path(PART, SOURCE).exists():
        return []
    seeds = list(read_json(settings.result_path(PART, SOURCE))["seeds"].values())
    written: list[Path] = []
    # all figures share one colour scale
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
                label="strength (largest of dense = 1)",
            )
            change = _draw_matrix(
                panels[2], after - before, seeds[0]["fields"], "difference", "PuOr", (-largest, largest)
            )
            figure.colorbar(change, ax=panels[2], location="bottom", shrink=0.9, aspect=20, label="pruned − dense")
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
    axes.set_facecolor("#dddddd")  # no interaction, in contrast to a weak one
    if len(fields) <= 8:
        for row, column in zip(*np.nonzero(np.isfinite(matrix)), strict=True):
            value = float(matrix[row, column])
            colour = "white" if abs(value) > 0.6 * limits[1] else "black"
            text = f"{value:.2f}".replace("0.", ".").replace("-", "−")
            axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color=colour)
    return image


def page(settings: PaperSettings) -> str:
    if not settings.result_path(PART, SOURCE).exists():
        return NOT_RUN_YET
    content = read_json(settings.result_path(PART, SOURCE))
    seeds = list(content["seeds"].values())
    budgets, fields = list(seeds[0]["pruned"]), seeds[0]["fields"]
    columns = [_scaled(seeds, budget) for budget in (None, *budgets)]
    rows = [
        [f"{fields[row]} × {fields[column]}", *(mean_sd([one[row, column] for one in of], 2) for of in columns)]
        for row, column in _pairs(_mean(seeds, None))
    ]
    return paragraphs(
        f"""An entry is the mean of `|⟨v_a, v_b⟩|` over the features of two fields, divided by the largest entry of the
dense model; mean over {len(seeds)} seeds. *Dense* is the model before pruning; the other columns are retrained tickets.
Features that do not occur in training are excluded. FM has no interactions within a field, so the diagonal is
empty.""",
        *(picture(settings, f"{PART}_{budget}", f"Interaction matrices at {budget} parameters") for budget in budgets),
        collapsed("all pairs of fields", table(["pair", "dense", *budgets], rows)),
        f"Share of their strength that the interactions keep: {_kept_strength_text(seeds)}.",
        provenance(content),
    )


def claims(settings: PaperSettings) -> list[Claim]:
    if not settings.result_path(PART, SOURCE).exists():
        return []
    seeds = list(read_json(settings.result_path(PART, SOURCE))["seeds"].values())
    checks = []
    for budget in seeds[0]["pruned"]:
        strong, weak = (fmean(half) for half in _kept_halves(seeds, budget))
        checks += [weak < strong, strong >= MIN_STAYED]
    evidence = f"FM on MovieLens-1M, share of their strength that the interactions keep: {_kept_strength_text(seeds)}"
    verdict = holds(checks)
    meaning = "Weak interactions lose more, but in small tickets strong ones fade as well."
    statement = "Weak field interactions fade, strong ones stay"
    return [Claim(statement, verdict, evidence, meaning if verdict == "in part" else "")]


def _kept_strength_text(seeds: list[dict[str, Any]]) -> str:
    texts = []
    for budget in seeds[0]["pruned"]:
        strong, weak = (mean_sd([100 * share for share in half], 0) for half in _kept_halves(seeds, budget))
        texts.append(f"at {budget} the stronger half of the pairs {strong} %, the weaker half {weak} %")
    return "; ".join(texts)


def _kept_halves(seeds: list[dict[str, Any]], budget: str) -> tuple[list[float], list[float]]:
    """Return the kept strength of the stronger and of the weaker half of the pairs, by seed."""
    kept = [
        _kept_strength(before, after)
        for before, after in zip(_scaled(seeds, None), _scaled(seeds, budget), strict=True)
    ]
    return [strong for strong, _ in kept], [weak for _, weak in kept]


def _kept_strength(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean kept share of the stronger and of the weaker half of the pairs."""
    pairs = [pair for pair in _pairs(before) if before[pair] > 0]
    half = len(pairs) // 2
    strong, weak = (fmean(after[pair] / before[pair] for pair in part) for part in (pairs[:half], pairs[half:]))
    return strong, weak


def _pairs(before: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return the pairs of fields that have features, the strongest first."""
    found = [(row, column) for row in range(len(before)) for column in range(row + 1, len(before))]
    return sorted((pair for pair in found if np.isfinite(before[pair])), key=lambda pair: -before[pair])


def _mean(seeds: list[dict[str, Any]], budget: str | None) -> NDArray[np.float64]:
    return np.mean(_scaled(seeds, budget), axis=0)


def _scaled(seeds: list[dict[str, Any]], budget: str | None) -> list[NDArray[np.float64]]:
    """Return the dense (None) or pruned matrices, each divided by its seed's largest dense entry."""
    matrices = [np.array(seed["dense"] if budget is None else seed["pruned"][budget], float) for seed in seeds]
    scales = [np.nanmax(np.array(seed["dense"], float)) for seed in seeds]
    return [matrix / scale for matrix, scale in zip(matrices, scales, strict=True)]


def _plain(matrix: NDArray[np.float64]) -> list[list[float | None]]:
    return [[round(float(value), 8) if np.isfinite(value) else None for value in row] for row in matrix]
