"""What happened in each epoch: plain records, one JSON object per line, never two for one epoch."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from thresher._internal.files import write_text
from thresher.errors import FormatError, ThresherError

Record = dict[str, Any]
"""Plain data with an integer `epoch`; the rest is the writer's."""


class History:
    """Records by epoch, in memory and, where a path is given, in a file that survives a kill after each epoch."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.records: list[Record] = []

    def append(self, record: Mapping[str, Any]) -> None:
        """Add an epoch's record; it is on the disk when this returns."""
        entry = dict(record)
        last = self.records[-1]["epoch"] if self.records else None
        if last is not None and entry["epoch"] <= last:
            raise ThresherError(
                f"{self.path or 'the history'} already holds epoch {last}, so epoch {entry['epoch']} cannot follow; "
                "restore the history before a run goes on"
            )
        line = _line(entry)
        self.records.append(entry)
        if self.path is not None:
            try:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line)
                    file.flush()
                    os.fsync(file.fileno())
            except OSError as error:
                raise ThresherError(
                    f"cannot write {self.path}: {error.strerror or error}; free space or choose another folder"
                ) from error

    def restore(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Start from these records, in memory and in the file, whatever the file held: the checkpoint decides."""
        self.records = [dict(record) for record in records]
        if self.path is not None:
            write_text(self.path, "".join(_line(record) for record in self.records))


def read_history(path: Path) -> list[Record]:
    """The records of a history file. A last line torn by a kill is left out; any other damage is an error."""
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    records: list[Record] = []
    for number, line in enumerate(lines[:-1], 1):  # what follows the last newline is empty or torn
        try:
            record = json.loads(line)
            if not isinstance(record, dict) or not isinstance(record.get("epoch"), int):
                raise ValueError("no JSON object with an integer 'epoch'")
        except ValueError as error:
            raise FormatError(f"{path}:{number}: not a history record ({error}); delete the line or the file") from None
        records.append(record)
    return records


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False, ensure_ascii=False) + "\n"
