"""The numbers of docs/security.md: `python benchmarks/reliability_page.py` writes them from result files of campaigns.

They are those of `make fuzz OUT=…`, `make crash OUT=…` and `python -m fuzz.bad_inputs 500 --out …`. A test compares
them with the page.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generated_sections import fill
from thresher._internal.storage.files import read_json

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "security.md"
RESULTS = ROOT / "benchmarks" / "results" / "reliability"
CRASHES = {
    "killed": "killed before each file operation (recorded states)",
    "empty": "power failure: unsynchronised files empty",
    "zeros": "power failure: unsynchronised files full of zeros",
    "ext4": "power failure on a real ext4 file system",
}
"""Kinds of recorded states; killed processes and servers have names of their own."""


def sections() -> dict[str, str]:
    """Name → text of each generated section."""
    lines = ["| campaign | tried | violations |", "| --- | --- | --- |"]
    lines += [f"| {what} | {tried:,} | {violations:,} |" for what, tried, violations in _rows()]
    return {"campaigns": "\n".join(lines)}


def _rows() -> Iterator[tuple[str, int, int]]:
    for path in sorted(RESULTS.glob("fuzz*.json")):
        content = read_json(path)
        yield f"mutated files{_note(content)}", content["mutations"], content["violations"]
    crashes: dict[str, Counter[str]] = {}
    for path in sorted(RESULTS.glob("crash*.json")):
        for name, counts in read_json(path)["kinds"].items():
            crashes.setdefault(_crash(name), Counter()).update(counts)
    for what, counts in crashes.items():
        yield what, counts["equal"] + counts["violation"], counts["violation"]
    for path in sorted(RESULTS.glob("bad_inputs*.json")):
        content = read_json(path)
        yield f"bad inputs of the command line{_note(content)}", content["inputs"], content["violations"]


def _crash(name: str) -> str:
    """The row of counts such as `prune --force: ext4` or `encode: killed 3 times`."""
    kind = name.rpartition(": ")[2]
    if kind == "reloads":
        return "servers and writers killed while a bundle is replaced"
    return CRASHES.get(kind, "tasks killed at random moments, once or several times, then resumed")


def _note(content: dict[str, Any]) -> str:
    return f" ({content['note']})" if "note" in content else ""


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), sections()), encoding="utf-8")
