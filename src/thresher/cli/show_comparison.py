"""What `show` says of a comparison, from the points it has by now: its table, its figure, and all of it as data."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.cli.console import Facts, Shown, show_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thresher.experiment.compared_points import ComparedPoint


def look_at_comparison(folder: Path) -> Shown:
    """A comparison's folder."""
    from thresher.cli.compare_command import comparison_tables
    from thresher.experiment.compare_figures import compared_models
    from thresher.experiment.compared_points import load_points

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

    everything = facts | {"points": [asdict(point) for point in points]}
    return Shown(everything, display, partial(_draw, points) if compared_models(points) else None)


def _draw(points: "Sequence[ComparedPoint]", figure: Path) -> list[Path]:
    """One figure, or one for each model with its name at the end of the file's."""
    from thresher.experiment.compare_figures import compared_models, draw_comparison

    if len(compared_models(points)) == 1:
        return draw_comparison(points, lambda _: figure)
    return draw_comparison(points, lambda model: figure.with_name(f"{figure.stem}-{model}{figure.suffix}"))
