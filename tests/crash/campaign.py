"""`make crash TIME=600` (seconds): kills and power failures of `prune`, `compare`, `encode`, `export` and `serve`.

One run of each task records every state in which a crash could leave its folder (`states`). From each of them the task
is resumed, and must end with the same files as without a crash, to the byte, and with nothing else. Clocks stand still
in these runs. Then running tasks are killed at random moments, some several times before they end (`kills`).
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product, zip_longest
from pathlib import Path
from typing import Any

from crash.tasks import TASKS, Task, contents, prepare, put, run_child  # before thresher is imported

# isort: split
from crash.disk import Disk
from crash.kills import kill_and_resume, num_kills
from crash.serving import kill_servers
from crash.states import Recorder

KINDS = ("killed", "empty", "zeros", "ext4")


class Campaign:
    """Counts by task and kind of crash; a violation is also written out, and its state kept if asked for."""

    def __init__(self, folder: Path, end: float, keep: Path | None = None, out: Path | None = None) -> None:
        self.work, self.folder, self.end, self.keep, self.out = folder / "work", folder, end, keep, out
        self.log, self.predictions = folder / "log", 0
        self.counts: dict[str, Counter[str]] = {}
        self.expected: dict[str, dict[str, bytes | None]] = {}

    def before(self, task: Task) -> Path:
        """What the task's folder holds before its work."""
        folder = self.folder / "before" / task.name
        if not folder.exists():
            folder.mkdir(parents=True)
            if task.before is not None:
                self.clear()
                self.run(lambda: task.before and task.before(self.work))
                shutil.copytree(self.work, folder, dirs_exist_ok=True)
        return folder

    def reference(self, task: Task) -> dict[str, bytes | None]:
        """The files of the task without a crash."""
        if task.name not in self.expected:
            before = self.before(task)
            self.clear()
            put(before, self.work)
            self.run(lambda: task.start(self.work))
            self.expected[task.name] = contents(self.work)
        return self.expected[task.name]

    def clear(self) -> None:
        self.work.mkdir(exist_ok=True)
        empty = self.folder / "nothing"
        empty.mkdir(exist_ok=True)
        put(empty, self.work)

    def run(self, work: Callable[[], object]) -> None:
        self.log.unlink(missing_ok=True)
        if status := run_child(work, self.log):
            raise AssertionError(f"status {status} without a crash:\n{self.log.read_text()[-2000:]}")

    def states_of(self, task: Task, source: str) -> Path:
        return self.folder / "states" / task.name.replace(" ", "_") / source

    def record(self, task: Task, disk: Disk | None) -> None:
        """One run of the task, which writes the folders of its states."""
        states = self.states_of(task, "disk" if disk else "files")
        before = self.before(task)
        self.clear()
        if disk is not None:
            disk.create()
            disk.mount()
        try:
            put(before, self.work)
            if disk is not None:
                os.sync()  # what was there before the task has reached the disk

            def record() -> None:
                Recorder(self.work, states, disk).start()
                task.start(self.work)

            self.run(record)
        finally:
            if disk is not None:
                disk.unmount()

    def places(self, tasks: list[Task], chance: random.Random) -> list[tuple[Task, Path]]:
        """The states that were not tried yet; kinds and tasks take turns, so that each part of them is a sample."""
        groups = []
        for task, source, kind in product(tasks, ("files", "disk"), KINDS):
            folder = self.states_of(task, source) / kind
            groups.append([(task, place) for place in sorted(folder.iterdir())] if folder.exists() else [])
            chance.shuffle(groups[-1])
        return [place for turn in zip_longest(*groups) for place in turn if place is not None]

    def replay(self, places: list[tuple[Task, Path]]) -> None:
        """Resume from recorded states until the time is over; a state that was tried is removed."""
        for task, place in places:
            self.of_kind(task, place.parent.name)["not tried"] += 1
        for number, (task, place) in enumerate(places, 1):
            if time.monotonic() > self.end:
                return
            put(place, self.work)
            self.check(task, place.parent.name, place.name, place)
            self.of_kind(task, place.parent.name)["not tried"] -= 1
            shutil.rmtree(place)
            if number % 5 == 0:
                self.report()

    def of_kind(self, task: Task, kind: str) -> Counter[str]:
        return self.counts.setdefault(f"{task.name}: {kind}", Counter())

    def check(self, task: Task, kind: str, place: str, state: Path | None = None) -> None:
        """Resume the task in the folder as it is, and compare its files."""
        counts = self.of_kind(task, kind)
        self.log.unlink(missing_ok=True)
        status = run_child(lambda: task.resume(self.work), self.log)
        found = contents(self.work)
        if not status and found == self.reference(task):
            counts["equal"] += 1
            return
        counts["violation"] += 1
        lines = [f"{task.name}: {kind}: {place}: "]
        if status:
            lines.append(f"status {status}: {' '.join(self.log.read_text().splitlines()[-1:])[:300]}")
        else:
            lines.append(", ".join(differences(found, self.reference(task))[:5]))
        write("".join(lines))
        if self.keep is not None and state is not None:
            name = f"{task.name}-{kind}-{place}".replace(" ", "_")
            shutil.copytree(state, self.keep / name, dirs_exist_ok=True)

    def proceed(self) -> None:
        """Go on from the counts of an earlier call."""
        if self.out is not None and self.out.exists():
            stored = json.loads(self.out.read_text(encoding="utf-8"))
            self.predictions = stored["predictions_while_replaced"]
            self.counts = {name: Counter(counts) for name, counts in stored["kinds"].items()}
            for counts in self.counts.values():
                del counts["not tried"]

    def report(self) -> dict[str, Any]:
        """The counts so far; also written to the file for them."""
        summary = self.summary()
        if self.out is not None:
            self.out.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
        return summary

    def summary(self) -> dict[str, Any]:
        total = sum(self.counts.values(), Counter[str]())
        total.pop("not tried", None)
        kinds = {name: dict(+counts) for name, counts in sorted(self.counts.items())}
        untried = sum(counts["not tried"] for counts in self.counts.values())
        return {
            "total": dict(total), "not_tried": untried, "processes_killed": num_kills(self.counts),
            "predictions_while_replaced": self.predictions, "kinds": kinds,
        }  # fmt: skip


def differences(found: dict[str, bytes | None], expected: dict[str, bytes | None]) -> list[str]:
    other = sorted(found.keys() - expected.keys())
    missing = sorted(expected.keys() - found.keys())
    changed = sorted(name for name in found.keys() & expected.keys() if found[name] != expected[name])
    return [f"{what} {name}" for what, names in (("left", other), ("missing", missing), ("other", changed))
            for name in names]  # fmt: skip


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(given: argparse.Namespace) -> int:
    chance, end = random.Random(given.seed), time.monotonic() + given.seconds
    prepare()
    with tempfile.TemporaryDirectory(prefix="crash-") if given.work is None else nullcontext(given.work) as name:
        campaign = Campaign(Path(name), end, given.keep, given.out)
        campaign.folder.mkdir(exist_ok=True)
        if given.work is not None:
            campaign.proceed()
        tasks = [task for task in TASKS if not given.task or task.name in given.task]
        disk = Disk(campaign.folder / "disk.img", campaign.work) if given.disk and Disk.available() else None
        if given.states:
            for task, each in product(tasks, [None] if disk is None else [None, disk]):
                done = campaign.states_of(task, "disk" if each else "files") / "recorded"
                if not done.exists():
                    campaign.record(task, each)
                    done.touch()
            places = campaign.places(tasks, chance)
            write(f"{len(places)} states")
            campaign.replay(places)
            campaign.report()
        if given.kills:
            kill_and_resume(campaign, tasks, given.kills, chance)
        if given.servers:
            counts, predictions = kill_servers(campaign.folder, given.servers, chance)
            campaign.predictions += predictions
            campaign.counts.setdefault("serve: reloads", Counter()).update(counts)
        summary = campaign.report()
    for kind, counts in summary["kinds"].items():
        write(f"{kind:<32} {', '.join(f'{count} {outcome}' for outcome, count in sorted(counts.items()))}")
    violations = summary["total"].get("violation", 0)
    write(f"{sum(summary['total'].values()):,} crashes, {violations} violations, seed {given.seed}")
    return 1 if violations else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Kill tasks, cut their power, resume them and compare.")
    parser.add_argument("seconds", type=float, help="of the recorded states; what is left then is not tried")
    parser.add_argument("--states", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--disk", action=argparse.BooleanOptionalAction, default=True, help="also record a real ext4")
    parser.add_argument("--kills", type=int, default=300, help="number of SIGKILLs at random moments")
    parser.add_argument("--servers", type=int, default=20, help="number of servers and writers that are killed")
    parser.add_argument("--task", action="append", help="only this task; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="copy states that end in violations here")
    parser.add_argument("--work", type=Path, help="folder of the recorded states; a second call goes on with the rest")
    parser.add_argument("--out", type=Path, help="write the counts here, as JSON")
    sys.exit(main(parser.parse_args()))
