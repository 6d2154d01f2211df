"""The `thresher` command: each verb is one short function; the work is done by the stages they call."""

import os


def main() -> None:
    """Run the command line; what a user can mend ends with one message and exit code 2."""
    # Torch reads this at its first tensor. Rows of a large table lie all over it: with huge pages a search step at ten
    # million rows takes a fifth less time.
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
    from thresher.cli.app import app

    app()
