"""Style, ticks and files of all figures: each is written as PNG and SVG. matplotlib is imported when one is drawn."""

from base64 import b64encode
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thresher._internal.storage.files import atomic_file
from thresher._internal.text import byte_unit

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
# Okabe and Ito's palette, readable with colour blindness; markers and dashes differ in grey print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":")
STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "thresher",  # the same data gives the same file
    "figure.constrained_layout.use": True,
}


def set_count_ticks(axis: "Axis", write: Callable[[float], str] | None = None) -> None:
    """Ticks at 1, 2 and 5 of each decade, or only at decades if there are many; labels such as 20k."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = sorted(axis.get_view_interval())
    axis.set_major_locator(LogLocator(base=10, subs=(1.0,) if high > 500 * low else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: (write or _short_count)(value)))
    axis.set_minor_formatter(NullFormatter())


def set_byte_ticks(axis: "Axis") -> str:
    """Ticks in one byte unit, which is returned for the axis label."""
    unit, size = byte_unit(max(axis.get_view_interval()) / 20)
    set_count_ticks(axis, lambda value: f"{value / size:,g}")
    return unit


def _short_count(value: float) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def page_style() -> AbstractContextManager[None]:
    import matplotlib

    return matplotlib.rc_context(STYLE)  # type: ignore[arg-type]


def new_figure(width: float, height: float) -> "Figure":
    """A figure without pyplot: no window, no global state."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def set_title(figure: "Figure", title: str | None) -> None:
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")


def save_figure(figure: "Figure", stem: str | Path) -> tuple[Path, ...]:
    """Write `<stem>.png` and `<stem>.svg`, each atomically."""
    stem, written = Path(stem), []
    if stem.suffix.removeprefix(".") in FORMATS:
        stem = stem.with_suffix("")
    for suffix in FORMATS:
        path = stem.with_name(f"{stem.name}.{suffix}")
        metadata = {"Date": None} if suffix == "svg" else None
        with atomic_file(path) as beside:
            figure.savefig(beside, format=suffix, dpi=200, metadata=metadata)
        written.append(path)
    return tuple(written)


def figures_html(paths: Iterable[Path]) -> str:
    """The figures in PNG files, as images in the page; missing files are left out."""
    images = [b64encode(path.read_bytes()).decode() for path in paths if path.suffix == ".png" and path.exists()]
    return "".join(f'<img style="max-width: 100%" src="data:image/png;base64,{image}">' for image in images)
