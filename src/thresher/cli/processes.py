"""Several processes for one command: started on this machine (`--processes`), or by torchrun on one or many."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import IO

import typer

from thresher.errors import ConfigError
from thresher.report.notes import print_note

LONGEST_WAIT = timedelta(hours=12)
"""The other processes wait while the first one encodes the data."""
SECONDS_TO_END = 20.0
"""How long processes may take to end by themselves after one of them failed."""
LOST = "another process of this training ended"


def start_processes(number: int | None) -> None:
    """Run this command in several processes and exit with their result; return if it is to run in this one."""
    if number is None or "WORLD_SIZE" in os.environ:
        return
    if number < 1:
        raise ConfigError(f"--processes is {number}; it must be at least 1.")
    if number > 1:
        raise typer.Exit(_run_children(_without_option(sys.argv[1:], "--processes"), number))


def refuse_processes(command: str) -> None:
    """Raise if torchrun has started several processes of a command that runs in one."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(f"thresher {command} runs in one process, but torchrun started several. Start it by itself.")


@contextmanager
def joined_processes() -> Iterator[bool]:
    """Join the processes that torchrun or `start_processes` has started; yields whether this one prints results."""
    if int(os.environ.get("WORLD_SIZE", "1")) <= 1:
        yield True
        return
    import torch
    import torch.distributed as distributed

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timeout=LONGEST_WAIT)
    yield distributed.get_rank() == 0
    distributed.barrier()
    distributed.destroy_process_group()


def _run_children(arguments: Sequence[str], number: int) -> int:
    """Run the command in `number` processes; returns the exit code. What the first one prints is shown."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = max(1, (os.cpu_count() or 1) // number)
    shared = {
        "WORLD_SIZE": str(number),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
    }
    with ExitStack() as files:
        outputs: list[IO[bytes] | None] = [None]
        outputs += [files.enter_context(tempfile.TemporaryFile()) for _ in range(1, number)]
        children = [
            subprocess.Popen(
                [sys.executable, "-m", "thresher", *arguments],
                env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=None if rank == 0 else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            for rank, output in enumerate(outputs)
        ]
        codes = _wait(children)
        return _report(codes, outputs)


def _wait(children: Sequence["subprocess.Popen[bytes]"]) -> list[int]:
    """Wait for all processes; after a failure the others get some time, then they are ended."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the children, which write a checkpoint
    end = float("inf")
    try:
        while any(child.poll() is None for child in children):
            if end == float("inf") and any(child.poll() for child in children):
                end = time.monotonic() + SECONDS_TO_END
            if time.monotonic() > end:
                for child in children:
                    child.terminate()
            time.sleep(0.05)
    finally:
        for child in children:
            child.kill()
        signal.signal(signal.SIGINT, before)
    return [child.wait() for child in children]


def _report(codes: Sequence[int], outputs: Sequence[IO[bytes] | None]) -> int:
    """Say which process failed, unless the first one has said why; returns the exit code of the command."""
    killed = [rank for rank, code in enumerate(codes) if code in (-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGABRT)]
    for rank, (code, output) in enumerate(zip(codes, outputs, strict=True)):
        if not code or output is None:
            continue
        output.seek(0)
        text = output.read().decode(errors="replace").strip()
        if rank not in killed and LOST not in text and codes[0] != 130:
            print_note(f"Process {rank + 1} of {len(codes)}:\n{text}", fold=False)
    for rank in killed:
        name = signal.Signals(-codes[rank]).name
        print_note(
            f"Process {rank + 1} of {len(codes)} was ended by the system ({name}), perhaps for lack of memory. "
            "Continue from the last checkpoint with --resume and the same number of processes.",
            fold=False,
        )
    failed = [code for code in codes if code]
    return next((code for code in failed if code > 0), 1) if failed else 0


def _without_option(arguments: Sequence[str], name: str) -> list[str]:
    """The arguments without `name VALUE` and `name=VALUE`."""
    kept, skip = [], False
    for argument in arguments:
        if not skip and argument != name and not argument.startswith(f"{name}="):
            kept.append(argument)
        skip = argument == name and not skip
    return kept
