"""`make fuzz TIME=60` (seconds) mutates files of every kind of artefact and counts what loading them does.

`damaged` files keep their old checksums; `forged` ones get new checksums, as a hostile author would write them. Batches
run in child processes, so that an abort is counted and does not end the campaign.
"""

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

from forged_files import change_json, reseal
from fuzz.mutations import Artefact, make_corpus, mutate
from thresher._internal.storage.folder_manifest import MANIFEST
from thresher.errors import ThresherError

BATCH, MAX_SECONDS = 1000, 5


class TooSlow(BaseException):
    """Loading took longer than the limit."""


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(seconds: float, first_seed: int = 0) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = make_corpus(folder)
        counts: Counter[str] = Counter()
        seed, end = first_seed, time.monotonic() + seconds
        while time.monotonic() < end:
            artefact, forged = corpus[seed % len(corpus)], seed // len(corpus) % 3 == 2
            log = folder / "log"
            log.write_text("")
            child = multiprocessing.get_context("spawn").Process(
                target=run_batch, args=(artefact, seed, forged, log, end)
            )
            child.start()
            child.join()
            kind = "forged" if forged else "damaged"
            for line in log.read_text().splitlines():
                counts[f"{kind} {artefact.name}: {line.split(' | ')[0]}"] += 1
                if " | " in line:
                    write(f"seed {seed}: {artefact.name}: {line}")
            if child.exitcode:
                counts[f"{kind} {artefact.name}: abort"] += 1
                write(f"seed {seed}: {artefact.name}: exit code {child.exitcode}")
            seed += 1
    for key in sorted(counts):
        write(f"{counts[key]:>8}  {key}")
    total = sum(counts.values())
    bad = sum(count for key, count in counts.items() if not key.endswith(("refused", "same", "forged content")))
    write(f"{total:,} mutations, {bad} violations, seeds {first_seed} to {seed - 1}")
    return 1 if bad else 0


def run_batch(artefact: Artefact, seed: int, forged: bool, log: Path, end: float) -> None:
    """Mutate, load, restore; one line of the log for each outcome. Memory is compared with the state after one load."""
    signal.signal(signal.SIGALRM, _stop)
    chance = random.Random(seed)
    files = [path for path in artefact.files() if path.is_file()]
    contents = {path: path.read_bytes() for path in files}
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
            for each, content in contents.items():
                if each.read_bytes() != content:
                    each.write_bytes(content)


def _outcome(artefact: Artefact, expected: str, forged: bool) -> str:
    signal.alarm(MAX_SECONDS)
    try:
        found = artefact.read(artefact.path)
    except ThresherError:
        return "refused"
    except TooSlow:
        return "slow | more than 5 s"
    except BaseException as error:
        return f"raw exception | {type(error).__name__}: {str(error)[:200]!r}"
    finally:
        signal.alarm(0)
    return "same" if found == expected else "forged content" if forged else "other content | accepted"


def _forge(artefact: Artefact, changed: Path) -> None:
    """Write new checksums where the mutated files still allow it."""
    try:
        if changed.suffix == ".json" and changed.name != MANIFEST:
            change_json(changed, {})
        if artefact.path.is_dir() and changed.name != MANIFEST:
            reseal(artefact.path)
    except (ValueError, TypeError, RecursionError, json.JSONDecodeError):
        return


def _stop(number: int, frame: object) -> None:
    raise TooSlow


if __name__ == "__main__":
    assert shutil.disk_usage(tempfile.gettempdir()).free > 1 << 28, "256 MB of disk space are needed"
    sys.exit(main(float(sys.argv[1]), *map(int, sys.argv[2:])))
