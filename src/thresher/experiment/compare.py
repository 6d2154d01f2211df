"""compare(): every method under every model, at every budget and seed; finished results are skipped.

    out/{settings.toml, data.parquet, encoded/, frontier-*, report/index.html}
    out/{cells/<model>/<method>/, points/<model>/<method>/<budget>-seed<n>.json}

The loop is in `comparison/sweep.py`; each of its cells runs the workflow.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import overload

from thresher._internal.storage.files import exclusive_lock
from thresher.errors import ThresherError, TimeLimitReached
from thresher.experiment.comparison.compare_config import SETTINGS, CompareConfig
from thresher.experiment.comparison.compared_points import (
    ComparedPoint,
    comparison_text,
    draw_comparison,
    load_points,
    model_texts,
)
from thresher.experiment.comparison.sweep import Sweep
from thresher.experiment.data_argument import Data, compare_settings, output_folder
from thresher.experiment.pages.compare_page import write_comparison_page
from thresher.report.figures import figures_html
from thresher.report.progress_display import run_progress
from thresher.search.budget import Budgets
from thresher.training.progress import Grouped, RunProgress


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    Attributes:
        points: every point in the folder, of this call and of earlier ones.
        unmet: (model, method, budget) → why no settings that were tried can meet it.
        finished: False if the time limit was reached; the same call continues from there.
        figures: the files drawn, one per model and format.
    """

    points: Sequence[ComparedPoint]
    unmet: Mapping[tuple[str, str, str], str]
    finished: bool
    figures: Sequence[Path]

    def _repr_html_(self) -> str:
        """Tables and figures, in a notebook."""
        texts = model_texts(self.points, self._budgets).values()
        return "".join(f"<pre>{escape(text)}</pre>" for text in texts) + figures_html(self.figures)

    def __str__(self) -> str:
        return comparison_text(self.points, self._budgets)

    @property
    def _budgets(self) -> list[str]:
        return list(dict.fromkeys(point.budget for point in self.points if point.budget is not None))


@overload
def compare(
    data: CompareConfig,
    *,
    out: str | Path | None = None,
    time_limit: float | None = None,
    progress: RunProgress | None = None,
) -> Comparison: ...
@overload
def compare(
    data: Data,
    *,
    label: str | None = None,
    methods: Sequence[str] | None = None,
    budgets: Budgets | None = None,
    config: CompareConfig | None = None,
    out: str | Path | None = None,
    time_limit: float | None = None,
    progress: RunProgress | None = None,
) -> Comparison: ...
def compare(
    data: CompareConfig | Data,
    *,
    label: str | None = None,
    methods: Sequence[str] | None = None,
    budgets: Budgets | None = None,
    config: CompareConfig | None = None,
    out: str | Path | None = None,
    time_limit: float | None = None,
    progress: RunProgress | None = None,
) -> Comparison:
    """Run or continue a comparison.

    Args:
        data: a pandas or polars data frame, the path of a file, or all settings as a `CompareConfig`. Methods, models,
            budgets and seeds may grow from call to call; data, search, training, teacher, width and trials must stay.
            Budgets of one call share a search: see `searched_together`.
        label: label column; guessed by default. This and the next three are for data frames and files.
        methods: the methods to compare, e.g. `["pep", "uniform"]`.
        budgets: target sizes, e.g. `["50k", "2%"]`.
        config: further settings; those of `config.data` describe the columns.
        out: folder of the comparison; by default a new folder `runs/compare-<date>-<time>`.
        time_limit: seconds after which it stops; finished work and the checkpoint of an unfinished training are kept.
        progress: a display; by default bars on a terminal, lines in a notebook, and nothing elsewhere.
    """
    folder = output_folder(out, "compare")
    existed = folder.exists()
    settings, frame = compare_settings(data, folder, label, methods, budgets, config)
    finished = True
    with exclusive_lock(folder), run_progress(progress) as shown:
        sweep = Sweep(settings, folder, Grouped(shown), time_limit)
        try:
            sweep.run(frame)
        except TimeLimitReached:
            finished = False
        except ThresherError:
            if not existed:
                with suppress(OSError):  # the folder is not empty
                    folder.rmdir()
            raise
    points = load_points(sweep.points_folder)
    figures = draw_comparison(points, lambda model: folder / f"frontier-{model}")
    if points:
        text = (folder / SETTINGS).read_text(encoding="utf-8")
        write_comparison_page(folder, points, settings=text, unmet=sweep.unmet, max_epochs=settings.training.max_epochs)
    return Comparison(points, sweep.unmet, finished, figures)
