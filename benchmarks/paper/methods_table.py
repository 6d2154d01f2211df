"""The paper's table of methods (performance, parameters, cost), with numbers of our own where it has ticks and crosses.

All come from the frontier (FM, MovieLens-1M). A tick is a rule written down below, not a judgement.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from paper import frontier
from paper.compared import points, result_path
from paper.page import ABSENT, command, made_from, mean_sd, not_run_yet, table
from paper.settings import PaperSettings
from thresher.files import read_json

PART = "methods_table"
TITLE = "The table of methods"
BUDGET = "20k"
MAX_LOSS, MAX_COST = 0.001, 3.0
"""What a tick stands for: at most so much test AUC below the dense model; at most so many times its training time."""
PAPER: Mapping[str, tuple[str, str, str]] = {
    "AutoInt, dense": ("✓", "✗", "✓"),
    "MDE": ("✗", "✓", "✗"),
    "NIS": ("✗", "✓", "✗"),
    "DartsEmb": ("✓", "✓", "✗"),
    "DNIS": ("✓", "✓", "✗"),
    "PEP": ("✓", "✓", "✓"),
}
"""Performance, parameters, computation, as published."""
OURS = {
    "PEP": "pep", "MDE": "mde", "NIS": "nis", "DartsEmb": "darts-emb", "DNIS": "dnis", "MGQE": "mgqe",
    "magnitude": "magnitude",
}  # fmt: skip


def run(settings: PaperSettings) -> None:
    frontier.run(replace(settings, models=("fm",)))  # passes over what is done


def draw(settings: PaperSettings) -> list[Path]:
    return []  # a table alone


def page(settings: PaperSettings) -> str:
    dense = _dense(settings)
    if not dense["aucs"]:
        return not_run_yet(PART)
    rows = []
    for name in dict.fromkeys([*PAPER, *OURS]):
        published = " ".join(PAPER[name]) if name in PAPER else ABSENT
        found = _measured(settings, name, dense)
        if found is None:
            rows.append([name, published, ABSENT, ABSENT, ABSENT, ABSENT])
            continue
        loss = dense["mean"] - fmean(found["aucs"])
        cost = None if found["seconds"] is None else found["seconds"] / dense["seconds"]
        ticks = [loss <= MAX_LOSS, found["size"] < 0.2 * dense["size"], None if cost is None else cost <= MAX_COST]
        rows.append(
            [
                name,
                published,
                " ".join(ABSENT if tick is None else "✓" if tick else "✗" for tick in ticks),
                mean_sd(found["aucs"]),
                f"{found['size']:,}",
                ABSENT if cost is None else f"{cost:.1f}×",
            ]
        )
    heads = ["", "paper", "ours", "test AUC", "parameters", "time"]
    path = result_path(settings, frontier.PART, "fm")
    return "\n\n".join(
        [
            f"Command: {command(PART)}. Ticks are for performance, parameters and computation. Ours are of "
            f"FM on MovieLens-1M at {BUDGET} parameters (the first row is a dense AutoInt in the paper, the dense FM "
            f"here). They mean: test AUC at most {MAX_LOSS} below the dense model's; under a fifth of its parameters; "
            f"search and retraining in at most {MAX_COST:g} times its training time. A search counts in full, though "
            "it may serve several budgets. Epochs differ: each training stops by itself.",
            table(heads, rows),
            made_from(read_json(path)) if path.exists() else "",
        ]
    )


def _measured(settings: PaperSettings, name: str, dense: Mapping[str, Any]) -> dict[str, Any] | None:
    """Test AUCs, parameters and seconds of a method at the budget."""
    if name == "AutoInt, dense":
        return {"aucs": dense["aucs"], "size": dense["size"], "seconds": dense["seconds"]}
    stored = points(settings, frontier.PART, "fm")
    found = [point for point in stored if point["label"] == OURS[name] and point.get("budget") == BUDGET]
    if not found:
        return None
    seconds = fmean(point["search_seconds"] + point["retrain_seconds"] for point in found)
    return {
        "aucs": [point["test_auc"] for point in found],
        "size": found[0]["num_parameters"],
        "seconds": seconds,
    }


def _dense(settings: PaperSettings) -> dict[str, Any]:
    """The plain table of 64 columns: test AUCs, size, seconds of its training."""
    stored = points(settings, frontier.PART, "fm")
    plain = [point for point in stored if point["label"] == "uniform" and "budget" not in point]
    widest = max((point["num_parameters"] for point in plain), default=0)
    dense = [point for point in plain if point["num_parameters"] == widest]
    aucs = [point["test_auc"] for point in dense]
    seconds = fmean(point["retrain_seconds"] for point in dense) if dense else 0.0
    return {"aucs": aucs, "mean": fmean(aucs) if aucs else 0.0, "size": widest, "seconds": seconds}
