"""What is said of a line that leaves its panel."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ANNOTATION_COLOUR = "#555555"


def annotate_out_of_range(axes: "Axes", curves: Mapping[str, Sequence[float]]) -> None:
    """Say beside where lines leave the frame for good what they come to.

    Args:
        axes: with its limits set.
        curves: name → the values of epochs 1, 2, …
    """
    low, high = axes.get_ylim()
    for side, edge, arrow in (("top", high, "↑"), ("bottom", low, "↓")):
        gone = {name: of for name, of in curves.items() if (of[-1] > high if side == "top" else of[-1] < low)}
        if gone:
            ends = [f"{name}: {of[-1]:.2f} at epoch {len(of)}" for name, of in gone.items()]
            last = max(at for of in gone.values() for at, value in enumerate(of, 1) if low <= value <= high or at == 1)
            note = axes.annotate(
                f"{arrow} " + "\n   ".join(ends), (last, edge), (16, 0), textcoords="offset points", va=side,
                fontsize=8, color=ANNOTATION_COLOUR,
            )  # fmt: skip
            note.set_in_layout(False)  # a long one shall not make the panel narrow
