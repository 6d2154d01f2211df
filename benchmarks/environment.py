"""What a result was made with: commit, versions, machine. Every result file has it beside its numbers."""

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

HERE = Path(__file__).parent


def run_environment() -> dict[str, object]:
    """Versions, machine and commit, and whether the tree had changes that are in no commit."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()

    packages = ("torch", "numpy", "numba", "polars", "thresher")
    return {
        "commit": git("rev-parse", "--short", "HEAD"),
        "changed_tree": bool(git("status", "--porcelain", "--", "../src", ".", ":!results")),
        "versions": {"python": platform.python_version()} | {package: version(package) for package in packages},
        "machine": {"processor": platform.machine(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
    }
