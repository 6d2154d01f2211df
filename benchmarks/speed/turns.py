"""Sides that take turns at very different speeds: a slow one runs once where a fast one runs a hundred times."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

import torch


def _nothing() -> None:
    pass


@dataclass
class Side:
    """One way of doing the same thing. `run` does it once.

    Attributes:
        prepare: called before each run, off the clock.
        runs_per_turn: how often it runs before the next side has its turn.
        extra_seconds: what a run costs besides, where it is done less often than each time.
    """

    run: Callable[[], object]
    prepare: Callable[[], object] = _nothing
    runs_per_turn: int = 5
    extra_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)

    def take_turn(self) -> None:
        for _ in range(self.runs_per_turn):
            self.prepare()
            start = perf_counter()
            self.run()
            self.seconds.append(perf_counter() - start)

    @property
    def median_seconds(self) -> float:
        return median(self.seconds) + self.extra_seconds


def take_turns(sides: Mapping[str, Side], num_rounds: int) -> None:
    """Let every side run in each round. Sides are expected to be warm."""
    shown = sys.stderr.isatty()
    for at in range(num_rounds):
        for name, side in sides.items():
            if shown:
                print(f"\r\033[Kround {at + 1} of {num_rounds}: {name}", end="", file=sys.stderr, flush=True)
            side.take_turn()
    if shown:
        print("\r\033[K", end="", file=sys.stderr)


def warm_up(*sides: Side, runs: int = 2) -> None:
    """Compile, allocate, and touch every page once, so that no side pays for it on the clock."""
    for side in sides:
        for _ in range(runs):
            side.prepare()
            side.run()


def touch_state(optimizer: torch.optim.Optimizer) -> None:
    """Write to every page of an optimizer's state. Row updates would meet fresh pages for a long time."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor):
                value.mul_(1)


def print_table(sides: Mapping[str, Mapping[str, float]]) -> None:
    columns = list(dict.fromkeys(column for side in sides.values() for column in side))
    width = max(len(side) for side in sides)
    print(" " * width + "".join(f"{column:>18}" for column in columns))
    for name, figures in sides.items():
        cells = (f"{figures[column]:18.3f}" if column in figures else " " * 18 for column in columns)
        print(f"{name:{width}}" + "".join(cells))
