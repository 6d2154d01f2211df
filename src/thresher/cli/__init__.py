"""The `thresher` command: each verb is one short function; the work is done by the stages they call."""

import io
import os
import sys


def main() -> None:
    """Run the command line; what a user can mend ends with one message and exit code 2."""
    # Torch reads this at its first tensor. With huge pages a search step on ten million rows takes less time: an eighth
    # at D = 64, a fifth at D = 16.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without é or █ is no reason to end
    from thresher.cli.app import app

    app()
