"""What a run cost: epochs and seconds of every stage, and its share of the dense training. Part of `results.json`."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from thresher._internal.text import align_columns
from thresher.training.checkpoint import read_history
from thresher.training.run_state import HISTORY

DENSE = "dense"


@dataclass(frozen=True, kw_only=True)
class StageCost:
    """Training of one stage; seconds include the evaluation after each epoch, but no interruption."""

    stage: str
    epochs: float  # not whole if one ended before all rows were visited
    seconds: float
    cpu_seconds: float  # of all threads; independent of what else the machine does
    over_dense: float | None  # seconds ÷ seconds of the dense training; None without one
    cpu_over_dense: float | None  # the same of CPU seconds


@dataclass(frozen=True, kw_only=True)
class Cost:
    """All stages, in the order in which they ran."""

    dense_seconds: float | None
    total_seconds: float
    total_over_dense: float | None
    total_cpu_over_dense: float | None
    stages: tuple[StageCost, ...]

    @classmethod
    def of(cls, folders: Iterable[tuple[str, Path]]) -> "Cost":
        """The cost of stages, given their names and folders; stages of one name are added up."""
        epochs: dict[str, float] = {}
        seconds: dict[str, float] = {}
        cpu: dict[str, float] = {}
        for stage, folder in folders:
            records = read_history(folder / HISTORY) if (folder / HISTORY).exists() else []
            if records:
                epochs[stage] = epochs.get(stage, 0) + sum(record.get("share", 1) for record in records)
                seconds[stage] = seconds.get(stage, 0.0) + sum(record["seconds"] for record in records)
                cpu[stage] = cpu.get(stage, 0.0) + sum(record.get("cpu_seconds", 0.0) for record in records)
        dense, total = seconds.get(DENSE), sum(seconds.values())
        return cls(
            dense_seconds=dense,
            total_seconds=total,
            total_over_dense=_ratio(total, dense),
            total_cpu_over_dense=_ratio(sum(cpu.values()), cpu.get(DENSE)),
            stages=tuple(
                StageCost(
                    stage=name,
                    epochs=epochs[name],
                    seconds=spent,
                    cpu_seconds=cpu[name],
                    over_dense=_ratio(spent, dense),
                    cpu_over_dense=_ratio(cpu[name], cpu.get(DENSE)),
                )
                for name, spent in seconds.items()
            ),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def cost_table(cost: Mapping[str, Any]) -> str:
    """The cost in `results.json` as text: one line per stage and their sum."""
    stages = [
        [stage["stage"], f"{round(stage['epochs'], 2):g}", f"{stage['seconds']:.1f}", _times(stage["over_dense"])]
        for stage in cost["stages"]
    ]
    total = ["total", "", f"{cost['total_seconds']:.1f}", _times(cost["total_over_dense"])]
    return align_columns([["stage", "epochs", "seconds", "× dense"], *stages, total], [False, True, True, True])


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _ratio(seconds: float, dense: float | None) -> float | None:
    return None if not dense else seconds / dense
