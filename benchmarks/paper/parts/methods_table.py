"""The paper's table of methods (performance, parameters, cost), with numbers of our own where it has ticks and crosses.

All come from the frontier (FM, MovieLens-1M). A tick is a rule written down below, not a judgement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from paper.markdown import ABSENT, NOT_RUN_YET, Claim, holds, mean_sd, provenance, table
from paper.method_comparison import points
from paper.parts import frontier
from paper.settings import PaperSettings
from thresher._internal.files import read_json

PART = "methods_table"
TITLE = "The table of methods"
PUBLISHED = "Table 1"
BUDGET = "20k"
MAX_LOSS, MAX_COST = 0.001, 3.0
"""What a tick stands for: at most so much test AUC below the dense model; at most so many times its training time."""
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
    frontier.run(replace(settings, models=("fm",)))  # passes over what is done


def draw(settings: PaperSettings) -> list[Path]:
    return []  # a table alone


@dataclass(frozen=True)
class Measured:
    """A method at one size: test AUCs over seeds, most parameters, seconds of search and retraining by seed."""

    aucs: list[float]
    size: int
    seconds: Mapping[int, float]

    @classmethod
    def of(cls, found: Sequence[Mapping[str, Any]]) -> "Measured":
        seconds = {point["seed"]: point["search_seconds"] + point["retrain_seconds"] for point in found}
        size = max(point["num_parameters"] for point in found)
        return cls([point["test_auc"] for point in found], size, seconds)

    def cost(self, base: "Measured") -> float:
        """How many times the base's time it takes: the median over the seeds both have, which ran side by side."""
        return median(self.seconds[seed] / base.seconds[seed] for seed in self.seconds.keys() & base.seconds.keys())


def claims(settings: PaperSettings) -> list[Claim]:
    """PEP's row of the table, in which the paper has three ticks."""
    stored = points(frontier.path(settings, "fm"))
    dense, pep = _dense(stored), _at_budget(stored, OURS["PEP"])
    if dense is None or pep is None:
        return []
    here = (
        f"FM on MovieLens-1M at {BUDGET}, by labels: {fmean(pep.aucs) - fmean(dense.aucs):+.4f} against dense, with "
        f"{pep.size / dense.size:.1%} of its parameters, search and retraining in {pep.cost(dense):.1f} times its time"
    )
    return [Claim("It is good, small and cheap at once", holds(_ticks(pep, dense)), here)]


def _ticks(found: Measured, dense: Measured) -> list[bool]:
    """Performance, parameters, computation."""
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
        ticks = " ".join("✓" if it else "✗" for it in _ticks(found, dense))
        rows.append([name, published, ticks, mean_sd(found.aucs), f"{found.size:,}", f"{found.cost(dense):.1f}×"])
    return "\n\n".join(
        [
            f"Ticks are for performance, parameters and computation. Ours are of "
            f"FM on MovieLens-1M at {BUDGET} parameters, on labels alone; in the first row the paper ticks a dense "
            "AutoInt, where ours is the dense FM, as all others are FM. Ticks mean: test AUC at most "
            f"{MAX_LOSS} below the dense model's; under a fifth "
            f"of its parameters; search and retraining in at most {MAX_COST:g} times its training time. A search "
            "counts in full, though it may serve several budgets, and PEP's is 128 wide where the dense table is 64. "
            "Times are multiples of the dense model's with the same seed, the median over seeds; each training stops "
            "by itself, and other jobs ran beside these, so they tell no more than the order of magnitude. MDE has no "
            "search: its narrow blocks are projected, which makes a step dearer.",
            table(["", "paper", "ours", "test AUC", "parameters", "time"], rows),
            provenance(read_json(path)) if path.exists() else "",
        ]
    )


def _at_budget(stored: Sequence[Mapping[str, Any]], label: str) -> Measured | None:
    found = [point for point in stored if point["label"] == label and point.get("budget") == BUDGET]
    return Measured.of(found) if found else None


def _dense(stored: Sequence[Mapping[str, Any]]) -> Measured | None:
    """The widest plain table."""
    plain = [point for point in stored if point["label"] == "uniform" and "budget" not in point]
    widest = max((point["num_parameters"] for point in plain), default=0)
    return Measured.of([point for point in plain if point["num_parameters"] == widest]) if plain else None
