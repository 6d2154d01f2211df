"""Markdown helpers shared by all parts of the page, and the interface of a part."""

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
    """A claim, whether the results support it, and the numbers behind the verdict.

    Attributes:
        meaning: one sentence for the reader; empty if the verdict needs no explanation.
    """

    statement: str
    holds: Holds
    evidence: str
    meaning: str = ""


class Part(Protocol):
    """The interface of the modules in `paper.parts`.

    Attributes:
        TITLE: heading of the section.
        PUBLISHED: the table or figure of the paper that is reproduced; empty if there is none.
        MEASURED: one paragraph that describes the experiment.
    """

    TITLE: str
    PUBLISHED: str
    MEASURED: str

    def run(self, settings: PaperSettings) -> None:
        """Compute the results that are missing in the result files."""

    def draw(self, settings: PaperSettings) -> list[Path]:
        """Draw the figures from the result files and return their paths."""

    def page(self, settings: PaperSettings) -> str:
        """Return the text of the section, made from the result files."""

    def claims(self, settings: PaperSettings) -> "list[Claim]":
        """Return the verdicts on the claims that this part tests."""


def not_in_paper(statement: str) -> str:
    """Mark a claim as not made by the paper."""
    return f"*Not in the paper:* {statement}"


def holds(checks: Iterable[bool]) -> Holds:
    """Return the verdict of several checks, at least one.

    >>> holds([True, True]), holds([True, False]), holds([False])
    ('yes', 'in part', 'no')
    """
    results = list(checks)
    if not results:
        raise ValueError("a claim needs at least one check")
    return "yes" if all(results) else "in part" if any(results) else "no"


def mean_sd(values: Sequence[float], digits: int = 4, *, sign: str = "") -> str:
    """Format mean ± standard deviation over seeds, with the number of seeds in brackets.

    >>> mean_sd([0.8490, 0.8496, 0.8493]), mean_sd([0.85]), mean_sd([1200, 1300], 0), mean_sd([1.5], 1, sign="+")
    ('0.8493 ± 0.0003 (3)', '0.8500 (1)', '1,250 ± 71 (2)', '+1.5 (1)')
    """
    if not values:
        return ABSENT
    spread = f" ± {stdev(values):,.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):{sign},.{digits}f}{spread} ({len(values)})"


def paragraphs(*texts: str) -> str:
    """Join the texts that are not empty."""
    return "\n\n".join(filter(None, texts))


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: bool = True) -> str:
    """Format a Markdown table; `numbers` aligns all columns but the first to the right."""
    line = ["---", *["---:" if numbers else "---"] * (len(heads) - 1)]
    lines = [list(heads), line, *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def command(part: str) -> str:
    """Return the command that runs one part."""
    return f"`python benchmarks/paper/make.py --only {part}`"


def picture(settings: PaperSettings, stem: str, alt: str) -> str:
    """Link a figure of `settings.images` by its name without suffix; empty if the figure does not exist."""
    drawn = settings.images / f"{stem}.png"
    return f"![{alt}]({Path(os.path.relpath(drawn, settings.page.parent)).as_posix()})" if drawn.exists() else ""


def provenance(*contents: Mapping[str, Any]) -> str:
    """Describe the commits and the machine that produced result files; many commits are only counted."""
    runs = [run for content in contents for run in content.get("made_with", [])]
    seeds = [seed for content in contents for seed in content.get("seeds", {}).values()]
    runs += [seed["made_with"] for seed in seeds if "made_with" in seed]
    if not runs:
        return ""
    commits = list(dict.fromkeys((run["commit"], run["changed_tree"]) for run in runs))
    machines = dict.fromkeys((run["machine"]["cores"], run["machine"]["threads"]) for run in runs)
    where = " and ".join(f"{cores} cores with {_count(threads, 'thread')}" for cores, threads in machines)
    if len(commits) <= SHOWN_COMMITS:
        names = [commit + (" (uncommitted changes)" if changed else "") for commit, changed in commits]
        return f"Produced at commit{'s' if len(commits) > 1 else ''} {', '.join(names)} on {where}."
    changed = sum(changed for _, changed in commits)
    note = f", {changed} of them with uncommitted changes" if changed else ""
    return f"Produced at {len(commits)} commits{note}, listed in the result files, on {where}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def collapsed(summary: str, text: str) -> str:
    """Hide a text behind a line that expands it."""
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"
