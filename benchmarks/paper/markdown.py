"""The Markdown all parts of the page are written in, and what a part says of the paper's claims."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal, Protocol

from paper.settings import PaperSettings

ABSENT, NOT_RUN_YET = "–", "Not run yet."
SHOWN_COMMITS = 3

Holds = Literal["yes", "in part", "no"]


@dataclass(frozen=True)
class Claim:
    """What the paper says, whether it holds here, and the numbers that say so."""

    said: str
    holds: Holds
    here: str


class Part(Protocol):
    """What a module of `paper.parts` has.

    Attributes:
        TITLE: heads its section.
        PUBLISHED: the table or figure of the paper it makes again; empty where it has none.
    """

    TITLE: str
    PUBLISHED: str

    def run(self, settings: PaperSettings) -> None:
        """Compute what its result files lack."""

    def draw(self, settings: PaperSettings) -> list[Path]:
        """Its figures, from result files alone; where they were written."""

    def page(self, settings: PaperSettings) -> str:
        """Its section, from result files alone."""

    def claims(self, settings: PaperSettings) -> "list[Claim]":
        """What it has to say of the paper's claims."""


def not_in_paper(said: str) -> str:
    """A claim that is not the paper's, marked as such."""
    return f"*Ours:* {said}"


def holds(found: Iterable[bool]) -> Holds:
    """All, some or none of what was looked at, of which there has to be something.

    >>> holds([True, True]), holds([True, False]), holds([False])
    ('yes', 'in part', 'no')
    """
    all_of_them = list(found)
    if not all_of_them:
        raise ValueError("a claim needs something that was looked at")
    return "yes" if all(all_of_them) else "in part" if any(all_of_them) else "no"


def mean_sd(values: Sequence[float], digits: int = 4, *, sign: str = "") -> str:
    """Mean ± standard deviation over seeds, and how many there were.

    >>> mean_sd([0.8490, 0.8496, 0.8493]), mean_sd([0.85]), mean_sd([1200, 1300], 0), mean_sd([1.5], 1, sign="+")
    ('0.8493 ± 0.0003 (3)', '0.8500 (1)', '1,250 ± 71 (2)', '+1.5 (1)')
    """
    if not values:
        return ABSENT
    spread = f" ± {stdev(values):,.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):{sign},.{digits}f}{spread} ({len(values)})"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: bool = True) -> str:
    """A Markdown table; where cells are numbers, all but the first column are set right."""
    line = ["---", *["---:" if numbers else "---"] * (len(heads) - 1)]
    lines = [list(heads), line, *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def command(part: str) -> str:
    """How to make one part."""
    return f"`python benchmarks/paper/make.py --only {part}`"


def picture(settings: PaperSettings, stem: str, alt: str) -> str:
    """A figure of `settings.images`, by its name without suffix; nothing while there is too little to draw it of."""
    drawn = settings.images / f"{stem}.png"
    return f"![{alt}]({Path(os.path.relpath(drawn, settings.page.parent)).as_posix()})" if drawn.exists() else ""


def provenance(*contents: Mapping[str, Any]) -> str:
    """Commits and machine of what results were made with, in a few words; of many commits their number."""
    runs = [run for content in contents for run in content.get("made_with", [])]
    seeds = [seed for content in contents for seed in content.get("seeds", {}).values()]
    runs += [seed["made_with"] for seed in seeds if "made_with" in seed]
    if not runs:
        return ""
    commits = list(dict.fromkeys((run["commit"], run["changed_tree"]) for run in runs))
    machines = dict.fromkeys((run["machine"]["cores"], run["machine"]["threads"]) for run in runs)
    where = " and ".join(f"{cores} cores, {threads} in use" for cores, threads in machines)
    if len(commits) <= SHOWN_COMMITS:
        names = [commit + (" (changed tree)" if changed else "") for commit, changed in commits]
        return f"Made at commit{'s' if len(commits) > 1 else ''} {', '.join(names)} on {where}."
    changed = sum(changed for _, changed in commits)
    told = f", {changed} of them with a changed tree" if changed else ""
    return f"Made at {len(commits)} commits{told}, which the result files name, on {where}."


def collapsed(summary: str, text: str) -> str:
    """What most readers pass over, behind a line that opens it."""
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"
