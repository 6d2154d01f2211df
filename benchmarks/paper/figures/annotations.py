"""Annotation of lines that leave their panel."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ANNOTATION_COLOUR = "#555555"


def annotate_out_of_range(axes: "Axes", curves: Mapping[str, Sequence[float]]) -> None:
    """Write the last value of lines that leave the frame for good next to the point where they leave it.

    Args:
        axes: its limits must be set.
        curves: name → values of epochs 1, 2, …
    """
    low, high = axes.get_ylim()
    for side, edge, arrow in (("top", high, "↑"), ("bottom", low, "↓")):
        left = {name: of for name, of in curves.items() if (of[-1] > high if side == "top" else of[-1] < low)}
        if left:
            ends = [f"{name}: {of[-1]:.2f} at epoch {len(of)}" for name, of in left.items()]
            last = max(at for of in left.values() for at, value in enumerate(of, 1) if low <= value <= high or at == 1)
            note = axes.annotate(
                f"{arrow} " + "\n   ".join(ends), (last, edge), (16, 0), textcoords="offset points", va=side,
                fontsize=8, color=ANNOTATION_COLOUR,
            )  # fmt: skip
            note.set_in_layout(False)  # a long note must not make the panel narrow
