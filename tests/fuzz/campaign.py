"""`make fuzz TIME=60` (seconds) mutates files of every kind of artefact and counts what loading them does.

`damaged` files keep their old checksums; `forged` ones get new checksums, as a hostile author would write them. Batches
run in child processes, so that an abort is counted and does not end the campaign. With `OUT=file.json` the counts by
kind are written after each batch, and another call with the same file goes on from them.
"""

import argparse
import json
import multiprocessing
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from forged_files import change_json, reseal
from fuzz.mutations import Artefact, make_corpus, mutate
from thresher._internal.storage.folder_manifest import MANIFEST
from thresher.errors import ThresherError

BATCH, MAX_CPU_SECONDS, MAX_SECONDS = 2000, 5, 60
HARMLESS = ("refused", "same", "forged content", "edited content")


class TooSlow(BaseException):
    """Loading took longer than the limit."""


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(seconds: float, first_seed: int, out: Path | None, only: list[str] | None, mutations: float) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = [artefact for artefact in make_corpus(folder) if not only or artefact.name in only]
        first_seed, seed, counts = stored(out) if out is not None and out.exists() else (first_seed, first_seed, None)
        counts, end = counts or Counter(), time.monotonic() + seconds
        while time.monotonic() < end and counts.total() < mutations:
            artefact, forged = corpus[seed % len(corpus)], seed // len(corpus) % 3 == 1
            log = folder / "log"
            log.write_text("")
            child = multiprocessing.get_context("spawn").Process(
                target=run_batch, args=(artefact, seed, forged, log, end)
            )
            child.start()
            child.join()
            kind = "forged" if forged else "damaged"
            for line in log.read_text().splitlines():
                counts[artefact.name, kind, line.split(" | ")[0]] += 1
                if " | " in line:
                    write(f"seed {seed}: {artefact.name}: {line}")
            if child.exitcode:
                counts[artefact.name, kind, "abort"] += 1
                write(f"seed {seed}: {artefact.name}: exit code {child.exitcode}")
            seed += 1
            if out is not None:
                out.write_text(json.dumps(summary(counts, first_seed, seed - 1), indent=2) + "\n", encoding="utf-8")
    for (artefact_name, kind, outcome), count in sorted(counts.items()):
        write(f"{count:>8}  {kind} {artefact_name}: {outcome}")
    total = summary(counts, first_seed, seed - 1)
    write(f"{total['mutations']:,} mutations, {total['violations']} violations, seeds {first_seed} to {seed - 1}")
    return 1 if total["violations"] else 0


def summary(counts: Counter[tuple[str, str, str]], first_seed: int, last_seed: int) -> dict[str, Any]:
    """The counts by kind of artefact, as committed in `benchmarks/results/fuzz.json`."""
    kinds: dict[str, dict[str, int]] = {}
    for (artefact, kind, outcome), count in sorted(counts.items()):
        kinds.setdefault(f"{kind} {artefact}", {})[outcome] = count
    bad = sum(count for (_, _, outcome), count in counts.items() if outcome not in HARMLESS)
    seeds = [first_seed, last_seed]
    return {"mutations": counts.total(), "violations": bad, "seeds": seeds, "batch": BATCH, "kinds": kinds}


def stored(out: Path) -> tuple[int, int, Counter[tuple[str, str, str]]]:
    """First seed, next seed and counts of an earlier call."""
    content, counts = json.loads(out.read_text(encoding="utf-8")), Counter[tuple[str, str, str]]()
    for name, outcomes in content["kinds"].items():
        kind, _, artefact = name.partition(" ")
        counts.update({(artefact, kind, outcome): count for outcome, count in outcomes.items()})
    return content["seeds"][0], content["seeds"][1] + 1, counts


def run_batch(artefact: Artefact, seed: int, forged: bool, log: Path, end: float) -> None:
    """Mutate, load, restore; one line of the log for each outcome. Memory is compared with the state after one load."""
    signal.signal(signal.SIGPROF, _stop)
    signal.signal(signal.SIGALRM, _stop)
    chance = random.Random(seed)
    files = [path for path in artefact.files() if path.is_file()]
    contents = {path: path.read_bytes() for path in files}
    manifest = artefact.path / MANIFEST
    expected = artefact.read(artefact.path)
    limit = 64 << 10  # KB above the peak of a normal load
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with log.open("a") as lines:
        for _ in range(BATCH):
            if time.monotonic() > end:
                return
            path = chance.choice(files)
            changed = mutate(contents[path], chance, list(contents.values()))
            path.write_bytes(changed)
            if forged:
                _forge(artefact, path)
            outcome = _outcome(artefact, expected, forged)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if peak - base > limit + 4 * len(changed) // 1024:
                outcome, base = f"memory | {path.name} {peak - base} KB", peak
            lines.write(f"{outcome}\n")
            lines.flush()
            for each in {path, manifest} & contents.keys():
                each.write_bytes(contents[each])


def _outcome(artefact: Artefact, expected: str, forged: bool) -> str:
    # seconds of the processor, so that other work on the machine does not count; more of the clock if it waits
    signal.setitimer(signal.ITIMER_PROF, MAX_CPU_SECONDS)
    signal.alarm(MAX_SECONDS)
    try:
        found = artefact.read(artefact.path)
    except ThresherError:
        return "refused"
    except TooSlow:
        return f"slow | more than {MAX_CPU_SECONDS} s"
    except BaseException as error:
        return f"raw exception | {type(error).__name__}: {str(error)[:200]!r}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    if found == expected:
        return "same"
    if not artefact.sealed:
        return "edited content"
    return "forged content" if forged else "other content | accepted"


def _forge(artefact: Artefact, changed: Path) -> None:
    """Write new checksums where the mutated files still allow it."""
    try:
        if changed.suffix == ".json" and changed.name != MANIFEST:
            change_json(changed, {})
        if (artefact.path / MANIFEST).exists() and changed.name != MANIFEST:
            reseal(artefact.path)
    except (ValueError, TypeError, RecursionError, json.JSONDecodeError):
        return


def _stop(number: int, frame: object) -> None:
    raise TooSlow


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Mutate files of every kind of artefact and load them.")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; a batch has one seed")
    parser.add_argument("--mutations", type=float, default=float("inf"), help="stop after so many, in whole batches")
    parser.add_argument("--only", action="append", help="only this kind of artefact; may be repeated")
    parser.add_argument("--out", type=Path, help="write the counts by kind here, as JSON")
    given = parser.parse_args()
    assert shutil.disk_usage(tempfile.gettempdir()).free > 1 << 28, "256 MB of disk space are needed"
    sys.exit(main(given.seconds, given.seed, given.out, given.only, given.mutations))
