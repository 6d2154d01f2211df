"""What `show` says of a comparison, from the points it has by now: its table, its figure, and all of it as data."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.cli.console import Facts, Shown, show_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thresher.compare.results import ComparedPoint


def look_at_comparison(folder: Path) -> Shown:
    """A comparison's folder."""
    from thresher.cli.compare_command import comparison_tables
    from thresher.compare.results import FLOOR, load_points

    points = load_points(folder / "points")
    budgets = {point.budget: 0 for point in points if point.budget is not None}
    for point in points:
        if point.budget is not None:
            budgets[point.budget] = max(budgets[point.budget], point.num_parameters)
    facts: Facts = {
        "kind": "comparison",
        "folder": str(folder),
        "data": ", ".join(dict.fromkeys(point.source for point in points)),
        "methods": list(dict.fromkeys(point.method for point in points if point.budget is not None)),
        "seeds": len({point.seed for point in points}),
        "points": len(points),
    }

    def display() -> None:
        show_facts(facts)
        if budgets:
            largest_first = sorted(budgets, key=lambda budget: -budgets[budget])
            print(f"\n{comparison_tables(points, largest_first)}")  # noqa: T201

    drawable = any(point.model != FLOOR for point in points)
    everything = facts | {"points": [asdict(point) for point in points]}
    return Shown(everything, display, partial(_draw, points) if drawable else None)


def _draw(points: "Sequence[ComparedPoint]", figure: Path) -> list[Path]:
    """One figure, or one for each model with its name at the end of the file's."""
    from thresher.compare.results import FLOOR
    from thresher.report.comparison import plot_comparison

    floor = [point.frontier_point() for point in points if point.model == FLOOR]
    models = list(dict.fromkeys(point.model for point in points if point.model != FLOOR))
    written = list[Path]()
    for model in models:
        of_model = [point.frontier_point() for point in points if point.model == model]
        stem = figure if len(models) == 1 else figure.with_name(f"{figure.stem}-{model}{figure.suffix}")
        written += plot_comparison(of_model, stem, floor=floor, title=f"{points[0].source} · {model}")
    return written
