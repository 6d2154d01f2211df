"""The frontier of a comparison, one figure per model."""

from collections.abc import Callable, Sequence
from pathlib import Path

from thresher.experiment.compared_points import FLOOR, ComparedPoint
from thresher.report.comparison import plot_comparison


def draw_comparison(points: Sequence[ComparedPoint], stem_of: Callable[[str], Path]) -> list[Path]:
    """Draw the methods under every model in the points; the model without an embedding is a line in each.

    Args:
        stem_of: model → where its figure goes, without suffix.
    """
    below = [point.frontier_point() for point in points if point.model == FLOOR]
    figures: list[Path] = []
    for model in compared_models(points):
        of_model = [point.frontier_point() for point in points if point.model == model]
        figures += plot_comparison(of_model, stem_of(model), floor=below, title=f"{points[0].source} · {model}")
    return figures


def compared_models(points: Sequence[ComparedPoint]) -> list[str]:
    """The models of some points, that without an embedding left out."""
    return list(dict.fromkeys(point.model for point in points if point.model != FLOOR))
