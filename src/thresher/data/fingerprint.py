"""Has the data or a setting changed since a table was encoded? A cheap fingerprint, and words for what differs."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_HEAD_BYTES = 1 << 20


def file_facts(path: Path) -> dict[str, Any]:
    """Name, size, time of change and a hash of both ends of a file. Not its folder: a moved file is the same data."""
    status = path.stat()
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        digest.update(stream.read(_HEAD_BYTES))
        stream.seek(max(0, status.st_size - _HEAD_BYTES))
        digest.update(stream.read(_HEAD_BYTES))
    return {"name": path.name, "bytes": status.st_size, "changed_ns": status.st_mtime_ns, "sha256": digest.hexdigest()}


def files_facts(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return [file_facts(path) for path in paths]


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
