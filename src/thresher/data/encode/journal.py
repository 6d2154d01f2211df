"""How far the first pass got, written down often enough that a killed run loses little, and the values it has seen."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from thresher._internal.files import write_json
from thresher.data.encode.field_coder import FieldCoder

MAX_SAMPLES = 20


@dataclass
class Journal:
    """State of the first pass at a moment when all files were flushed."""

    fingerprint: str
    position: Mapping[str, int] | None = None
    rows: list[int] = field(default_factory=lambda: [0, 0, 0])
    positives: int = 0
    value_logs: int = 0
    skipped: int = 0
    skipped_samples: list[tuple[str, int | None, str]] = field(default_factory=list)
    cut: tuple[float, float] | None = None
    complete: bool = False

    def skip(self, file: Path | None, line: int | None, reason: str) -> None:
        self.skipped += 1
        if len(self.skipped_samples) < MAX_SAMPLES:
            self.skipped_samples.append((str(file or ""), line, reason))

    def save(self, folder: Path) -> None:
        write_json(folder / "journal.json", asdict(self))

    @classmethod
    def load(cls, folder: Path, fingerprint: str) -> "Journal | None":
        """The journal of an interrupted run over the same data and settings, if there is one."""
        try:
            content: dict[str, Any] = json.loads((folder / "journal.json").read_text(encoding="utf-8"))
            journal = cls(**content)
        except (OSError, ValueError, TypeError):
            return None
        journal.cut = None if journal.cut is None else (journal.cut[0], journal.cut[1])
        return journal if journal.fingerprint == fingerprint else None


def write_values(folder: Path, number: int, coders: Sequence[FieldCoder]) -> None:
    """Write down the values that got a code since the last time, by coder."""
    frames = [
        pl.DataFrame({"coder": np.full(len(values), at, np.uint16), "value": values.rename("value")})
        for at, coder in enumerate(coders)
        for values in coder.new_values
    ]
    (folder / "values").mkdir(exist_ok=True)
    schema = {"coder": pl.UInt16, "value": pl.String}
    frame = pl.concat(frames) if frames else pl.DataFrame(schema=schema)
    frame.write_parquet(folder / "values" / f"{number}.parquet", compression="lz4")
    for coder in coders:
        coder.new_values.clear()


def replay_values(folder: Path, number: int, coders: Sequence[FieldCoder]) -> None:
    """Give all values written down their codes again."""
    for log in range(number):
        frame = pl.read_parquet(folder / "values" / f"{log}.parquet", glob=False)
        for (at,), part in frame.group_by("coder", maintain_order=True):
            coders[int(at)].seed(part["value"])
    for coder in coders:
        coder.new_values.clear()


def read_values(folder: Path, number: int, kept: Sequence[NDArray[np.bool_]]) -> list[pl.Series]:
    """For each coder the values of the codes that are kept, in the order of the codes; the others are never held."""
    seen = [0] * len(kept)
    found: list[list[pl.Series]] = [[] for _ in kept]
    for log in range(number):
        frame = pl.read_parquet(folder / "values" / f"{log}.parquet", glob=False)
        for (key,), part in frame.group_by("coder", maintain_order=True):
            at = int(key)
            chosen = kept[at][seen[at] : seen[at] + len(part)]
            seen[at] += len(part)
            found[at].append(part["value"].filter(pl.Series(chosen, dtype=pl.Boolean)))
    return [pl.concat(parts, rechunk=True) if parts else pl.Series(dtype=pl.String) for parts in found]
