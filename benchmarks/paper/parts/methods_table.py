"""The paper's table of methods (performance, parameters, cost), with measured numbers.

All numbers come from the frontier (FM, MovieLens-1M). A tick follows from a fixed rule.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from paper.markdown import ABSENT, NOT_RUN_YET, Claim, holds, mean_sd, paragraphs, provenance, table
from paper.method_comparison import points
from paper.parts import frontier
from paper.settings import PaperSettings
from thresher._internal.storage.files import read_json

PART = "methods_table"
TITLE = "Table of methods"
PUBLISHED = "Table 1"
MEASURED = """Performance, number of parameters and computation of each method, as ticks. All rows are FM on
MovieLens-1M
with hard labels; in the first row the paper uses a dense AutoInt, and here it is the dense FM."""
BUDGET = "20k"
MAX_LOSS, MAX_COST = 0.001, 3.0
"""Rules of a tick: largest loss of test AUC, and largest multiple of the dense model's training time."""
DENSE = "dense (paper: AutoInt; here: FM)"
PAPER: Mapping[str, tuple[str, str, str]] = {
    DENSE: ("✓", "✗", "✓"),
    "MDE": ("✗", "✓", "✗"),
    "NIS": ("✗", "✓", "✗"),
    "DartsEmb": ("✓", "✓", "✗"),
    "DNIS": ("✓", "✓", "✗"),
    "PEP": ("✓", "✓", "✓"),
}
"""Performance, parameters, computation, as published."""
OURS = {
    "PEP": "pep", "MDE": "mde", "NIS": "nis", "DartsEmb": "darts-emb", "DNIS": "dnis", "MGQE": "mgqe",
    "magnitude": "magnitude",
}  # fmt: skip


def run(settings: PaperSettings) -> None:
    frontier.run(replace(settings, models=("fm",)))  # finished results are skipped


def draw(settings: PaperSettings) -> list[Path]:
    return []


@dataclass(frozen=True)
class Measured:
    """A method at one size: test AUC by seed, largest number of parameters, seconds of all stages by seed."""

    aucs: list[float]
    size: int
    seconds: Mapping[int, float]

    @classmethod
    def of(cls, found: Sequence[Mapping[str, Any]]) -> "Measured":
        seconds = {point["seed"]: point["search_seconds"] + point["retrain_seconds"] for point in found}
        size = max(point["num_parameters"] for point in found)
        return cls([point["test_auc"] for point in found], size, seconds)

    def cost(self, base: "Measured") -> float:
        """Return the time as a multiple of the base: the median over common seeds, which ran side by side."""
        return median(self.seconds[seed] / base.seconds[seed] for seed in self.seconds.keys() & base.seconds.keys())


def claims(settings: PaperSettings) -> list[Claim]:
    """Check PEP's row, which has three ticks in the paper."""
    stored = points(frontier.path(settings, "fm"))
    dense, pep = _dense(stored), _at_budget(stored, OURS["PEP"])
    if dense is None or pep is None:
        return []
    verdict = holds(_ticks(pep, dense))
    evidence = (
        f"FM on MovieLens-1M at {BUDGET}, hard labels: {fmean(pep.aucs) - fmean(dense.aucs):+.4f} test AUC against the "
        f"dense model, {pep.size / dense.size:.1%} of its parameters, {pep.cost(dense):.1f} times its training time"
    )
    meaning = "The table is small, but one search and one retraining cost several times the training of a dense model."
    statement = "PEP is accurate, small and cheap at once"
    return [Claim(statement, verdict, evidence, meaning if pep.cost(dense) > MAX_COST else "")]


def _ticks(found: Measured, dense: Measured) -> list[bool]:
    """Return the ticks for performance, parameters and computation."""
    loss = fmean(dense.aucs) - fmean(found.aucs)
    return [loss <= MAX_LOSS, found.size < 0.2 * dense.size, found.cost(dense) <= MAX_COST]


def page(settings: PaperSettings) -> str:
    path = frontier.path(settings, "fm")
    stored = points(path)
    dense = _dense(stored)
    if dense is None:
        return NOT_RUN_YET
    rows = []
    for name in dict.fromkeys([*PAPER, *OURS]):
        published = " ".join(PAPER[name]) if name in PAPER else ABSENT
        found = dense if name == DENSE else _at_budget(stored, OURS[name])
        if found is None:
            rows.append([name, published, ABSENT, ABSENT, ABSENT, ABSENT])
            continue
        ticks = " ".join("✓" if tick else "✗" for tick in _ticks(found, dense))
        rows.append([name, published, ticks, mean_sd(found.aucs), f"{found.size:,}", f"{found.cost(dense):.1f}×"])
    return paragraphs(
        "The three ticks stand for performance, parameters and computation. The rules here are: test AUC at most "
        f"{MAX_LOSS} below the dense model; fewer than a fifth of its parameters; search and retraining in at most "
        f"{MAX_COST:g} times its training time. Methods have {BUDGET} parameters. The search is counted in full, "
        "although it can serve several budgets, and PEP's search has D = 128 while the dense table has D = 64. Times "
        "are the median over seeds of the multiple of the dense model's time. Every training stops early by itself and "
        "other jobs ran on the machine, so times show the order of magnitude only. MDE has no search, but its "
        "projections make a step slower.",
        table(["", "paper", "Thresher", "test AUC", "parameters", "time"], rows),
        provenance(read_json(path)) if path.exists() else "",
    )


def _at_budget(stored: Sequence[Mapping[str, Any]], label: str) -> Measured | None:
    found = [point for point in stored if point["label"] == label and point.get("budget") == BUDGET]
    return Measured.of(found) if found else None


def _dense(stored: Sequence[Mapping[str, Any]]) -> Measured | None:
    """Return the dense table with the largest dimension."""
    plain = [point for point in stored if point["label"] == "uniform" and "budget" not in point]
    widest = max((point["num_parameters"] for point in plain), default=0)
    return Measured.of([point for point in plain if point["num_parameters"] == widest]) if plain else None
