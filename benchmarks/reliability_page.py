"""The numbers of docs/security.md: `python benchmarks/reliability_page.py` writes them from result files of campaigns.

They are those of `make fuzz OUT=…`, `make crash OUT=…`, `python -m fuzz.bad_inputs 500 --out …` and `python -m
crash.forks 100 --out …`. A test compares them with the page.
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
KILLED = "tasks killed at random moments, once or several times, then resumed"


def sections() -> dict[str, str]:
    """Name → text of each generated section."""
    lines = ["| campaign | tried | violations |", "| --- | --- | --- |"]
    lines += [f"| {what} | {tried} | {violations:,} |" for what, tried, violations in _rows()]
    return {"campaigns": "\n".join(lines)}


def _rows() -> Iterator[tuple[str, str, int]]:
    for path in sorted(RESULTS.glob("fuzz*.json")):
        content = read_json(path)
        yield f"mutated files{_note(content)}", f"{content['mutations']:,}", content["violations"]
    crashes: dict[str, Counter[str]] = {}
    killed = Counter[str]()
    for path in sorted(RESULTS.glob("crash*.json")):
        content = read_json(path)
        for name, counts in content["kinds"].items():
            crashes.setdefault(_crash(name), Counter()).update(counts)
        killed[KILLED] += content.get("processes_killed", 0)
    for what, counts in crashes.items():
        tried, left = counts["equal"] + counts["violation"], counts["not tried"]
        processes = f" ({killed[what]:,} processes killed)" if killed[what] else ""
        yield what, f"{tried:,}{f' of {tried + left:,}' if left else ''}{processes}", counts["violation"]
    for path in sorted(RESULTS.glob("bad_inputs*.json")):
        content = read_json(path)
        yield f"bad inputs of the command line{_note(content)}", f"{content['inputs']:,}", content["violations"]
    for path in sorted(RESULTS.glob("forks*.json")):
        content = read_json(path)
        yield "forked children of a predictor and a server", f"{content['children']:,}", content["violations"]


def _crash(name: str) -> str:
    """The row of counts such as `prune --force: ext4` or `encode: killed 3 times`."""
    kind = name.rpartition(": ")[2]
    if kind == "reloads":
        return "servers and writers killed while a bundle is replaced"
    return CRASHES.get(kind, KILLED)


def _note(content: dict[str, Any]) -> str:
    return f" ({content['note']})" if "note" in content else ""


if __name__ == "__main__":
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), sections()), encoding="utf-8")
