"""Running tasks are killed at random moments, resumed, perhaps killed again, and in the end compared."""

import os
import random
import re
import signal
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from crash.tasks import Task, put, start_child

if TYPE_CHECKING:
    from crash.campaign import Campaign

MAX_KILLS = 8  # of one piece of work before it may end


def kill_and_resume(campaign: "Campaign", tasks: Sequence[Task], number: int, chance: random.Random) -> None:
    """Until so many processes have been killed, also by earlier calls; the tasks take turns."""
    seconds: dict[str, float] = {}
    killed, turn = num_kills(campaign.counts), 0
    while killed < number:
        task = tasks[turn % len(tasks)]
        turn += 1
        if task.name not in seconds:
            campaign.reference(task)
            put(campaign.before(task), campaign.work)
            started = time.monotonic()
            campaign.run(lambda task=task: task.start(campaign.work))
            seconds[task.name] = time.monotonic() - started
        put(campaign.before(task), campaign.work)
        times = 0
        for again in range(chance.randint(1, MAX_KILLS)):
            work = task.resume if again else task.start
            child = start_child(lambda work=work: work(campaign.work), campaign.log)
            if not _kill(child, chance.uniform(0, seconds[task.name] / (1 + again))):
                break  # it had ended
            times += 1
        killed += times
        if times:
            campaign.check(task, f"killed {times} times" if times > 1 else "killed once", f"turn {turn}")
            campaign.report()


def num_kills(counts: Mapping[str, Mapping[str, int]]) -> int:
    """How many processes were killed in the turns that were counted."""
    killed = 0
    for name, outcomes in counts.items():
        if found := re.search(r": killed (once|\d+ times)", name):
            times = 1 if found[1] == "once" else int(found[1].split()[0])
            killed += times * sum(outcomes.values())
    return killed


def _kill(child: int, seconds: float) -> bool:
    """Kill a process after so many seconds; False if it has ended before."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
