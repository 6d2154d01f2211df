"""The environment of a run: commit, package versions, machine. Every result file stores it next to its numbers."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

HERE = Path(__file__).parent


def run_environment() -> dict[str, object]:
    """Return commit, versions and machine; `changed_tree` is True if the working tree has uncommitted changes."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()

    packages = ("torch", "numpy", "numba", "polars", "thresher-embeddings")
    return {
        "commit": git("rev-parse", "--short", "HEAD"),
        "changed_tree": bool(git("status", "--porcelain", "--", "../src", ".", ":!results")),
        "versions": {"python": platform.python_version()} | {package: version(package) for package in packages},
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
    }
