"""The data of a run in one place: where its rows come from, how they are split, and how many there are."""

from pathlib import Path
from typing import Any

from thresher._internal.text import list_first
from thresher.data.config import DataConfig
from thresher.data.schema import SPLITS
from thresher.data.table import EncodedTable


def data_summary(config: DataConfig, table: EncodedTable) -> dict[str, Any]:
    """Plain data for the metadata of bundles. Files are named without their folders."""
    names = [Path(path).name for path in config.paths]
    return {
        "source": list_first(names, 3) if names else config.source,
        "split": _split(config),
        "rows": {name: len(table.split(name).labels) for name in SPLITS},
    }


def _split(config: DataConfig) -> str:
    split = config.split
    if split.kind == "random":
        shares = " / ".join(f"{share:.0%}" for share in split.shares)
        return f"random, {shares}, seed {config.split_seed}"
    if split.kind == "files":
        return "by files"
    return f"by the column {split.column}" if split.kind == "column" else f"by time (column {split.column})"
