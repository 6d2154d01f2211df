"""Has the data or a setting changed since a table was encoded? A cheap fingerprint, and words for what differs."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WHOLE_BYTES, _END_BYTES = 256 << 20, 1 << 20
"""Files of so many bytes together are read whole, which takes a fraction of a second; of more, both ends of each."""


def files_facts(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Name, size and a hash of each file. Not its folder: a moved file is the same data.

    The hash of a large file is that of its two ends, so there the time of change counts, too; elsewhere it does not: a
    file that was copied or fetched again is the same data.
    """
    whole = sum(path.stat().st_size for path in paths) <= WHOLE_BYTES
    return [_file_facts(path, whole=whole) for path in paths]


def _file_facts(path: Path, *, whole: bool) -> dict[str, Any]:
    status = path.stat()
    facts = {"name": path.name, "bytes": status.st_size}
    with path.open("rb") as stream:
        if whole or status.st_size <= 2 * _END_BYTES:
            return {**facts, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}
        digest = hashlib.sha256(stream.read(_END_BYTES))
        stream.seek(status.st_size - _END_BYTES)
        digest.update(stream.read(_END_BYTES))
    return {**facts, "changed_ns": status.st_mtime_ns, "sha256": digest.hexdigest()}


def fingerprint(facts: Mapping[str, Any]) -> str:
    """One short name for everything an encoding depends on."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def differences(before: Any, now: Any, where: str = "") -> list[str]:
    """What changed between two fact trees, in words: `plan.split_seed was 0, is 1`."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        keys = sorted(set(before) | set(now))
        return [d for key in keys for d in differences(before.get(key), now.get(key), f"{where}.{key}".lstrip("."))]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [
            d for at, (a, b) in enumerate(zip(before, now, strict=True)) for d in differences(a, b, f"{where}[{at}]")
        ]
    return [] if before == now else [f"{where} was {_short(before)}, is {_short(now)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
