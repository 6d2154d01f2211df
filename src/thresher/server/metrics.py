"""Prometheus metrics, summed over the worker processes."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # where prometheus_client keeps the numbers of several processes
SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def share_metrics() -> Path:
    """A folder that the workers share; set before prometheus_client is imported."""
    folder = Path(tempfile.mkdtemp(prefix="thresher-metrics-"))
    os.environ[FOLDER] = str(folder)
    return folder


def remove_shared(folder: Path) -> None:
    os.environ.pop(FOLDER, None)
    shutil.rmtree(folder, ignore_errors=True)


class Metrics:
    """The counters of this process."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        registry = CollectorRegistry()
        self.registry = registry
        self.requests = Counter("thresher_requests", "Requests.", ["endpoint", "status"], registry=registry)
        self.seconds = Histogram(
            "thresher_request_seconds", "Time to answer.", ["endpoint"], buckets=SECONDS, registry=registry
        )
        self.rows = Counter("thresher_rows", "Predicted rows.", ["bundle"], registry=registry)
        self.unknown = Counter(
            "thresher_unknown_values", "Values without a feature of their own.", ["bundle"], registry=registry
        )
        self.in_progress = Gauge(
            "thresher_predictions_in_progress", "Predictions that run or wait.", registry=registry,
            multiprocess_mode="livesum",
        )  # fmt: skip
        self.reloads = Counter("thresher_reloads", "Reloads of bundles.", ["bundle", "result"], registry=registry)
        self.loaded_at = Gauge(
            "thresher_bundle_loaded_timestamp_seconds", "When the bundle was loaded.", ["bundle"], registry=registry,
            multiprocess_mode="livemin",
        )  # fmt: skip
        self.memory = Gauge(
            "thresher_resident_memory_bytes", "Resident memory.", registry=registry, multiprocess_mode="livesum"
        )

    def write(self) -> bytes:
        """The text that Prometheus reads."""
        from prometheus_client import generate_latest

        self.memory.set(resident_bytes())
        return generate_latest(self._all())

    def _all(self) -> "CollectorRegistry":
        if FOLDER not in os.environ:
            return self.registry
        from prometheus_client import CollectorRegistry
        from prometheus_client.multiprocess import MultiProcessCollector

        _forget_dead_workers(Path(os.environ[FOLDER]))
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return registry


def _forget_dead_workers(folder: Path) -> None:
    """Gauges of processes that ended no longer count; counters stay."""
    from prometheus_client.multiprocess import mark_process_dead

    for path in folder.glob("gauge_live*_*.db"):
        pid = int(path.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid)  # type: ignore[no-untyped-call]
        except PermissionError:
            continue


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
