"""The frontier of a comparison, one figure per model."""

from collections.abc import Sequence
from pathlib import Path

from thresher.compare.results import ComparedPoint
from thresher.report.comparison import plot_comparison


def draw_comparison(points: Sequence[ComparedPoint], out: Path, *, floor: str) -> list[Path]:
    """Draw `frontier-<model>` for every model in the points; that of the model named `floor` is a line in each."""
    below = [point.frontier_point() for point in points if point.model == floor]
    figures: list[Path] = []
    for model in dict.fromkeys(point.model for point in points if point.model != floor):
        of_model = [point.frontier_point() for point in points if point.model == model]
        title = f"{points[0].source} · {model}"
        figures += plot_comparison(of_model, out / f"frontier-{model}", floor=below, title=title)
    return figures
