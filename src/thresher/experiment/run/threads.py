"""The number of threads of a run: with another one, sums of torch round differently, and results differ a little."""

import logging
from pathlib import Path

import torch

from thresher._internal.storage.files import read_json, write_json
from thresher.errors import FormatError

logger = logging.getLogger(__name__)
THREADS = "threads.json"


def note_threads(folder: Path) -> None:
    """Store the number of threads of torch, or warn if the folder's work was begun with another number."""
    path, threads, begun = folder / THREADS, torch.get_num_threads(), None
    if path.exists():
        try:
            begun = read_json(path).get("threads")
        except FormatError as error:
            logger.warning(f"{error} The number of threads is stored again.")
    if begun is None:
        write_json(path, {"threads": threads})
    elif begun != threads:
        logger.warning(
            f"{folder} was begun with {begun} threads and is resumed with {threads}. Models with hidden layers or "
            f"attention may end with slightly different weights than without the interruption. For equal results, "
            f"resume with OMP_NUM_THREADS={begun}."
        )
