"""What a report page shows of the trainings of one seed: metrics by epoch, and the search with its tickets."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thresher._internal.storage.files import read_json
from thresher.experiment.floor import NO_EMBEDDING
from thresher.experiment.run.run_folder import Run
from thresher.training.checkpoint import read_history
from thresher.training.run_state import HISTORY

SEARCH = "search"


def seed_trainings(run: Run, trainings: Sequence[tuple[str, Path]]) -> dict[str, Any]:
    """Curves of all stages, the entries kept during the search, and its tickets.

    Args:
        run: the run of one seed.
        trainings: name and folder of the dense model, other teachers and tickets.
    """
    tickets = _tickets(run)
    budgets = {ticket["budget"] for ticket in tickets}
    curves = [curve for name, folder in trainings if (curve := _curve(name, folder)) is not None]
    search = [record for record in _records(run.tickets) if "num_kept" in record]
    if search and (curve := _curve(SEARCH, run.tickets)) is not None:
        first = next((at for at, own in enumerate(curves) if own["stage"] in budgets), len(curves))
        curves.insert(first, {**curve, "best": None, "tickets": _ticket_epochs(search, tickets)})
    if (curve := _curve(NO_EMBEDDING, run.floor)) is not None:
        curves.append(curve)
    return {"seed": run.config.seed, "curves": curves, "kept": search, "tickets": tickets}


def _records(folder: Path) -> list[dict[str, Any]]:
    history = folder / HISTORY
    return read_history(history) if history.exists() else []


def _curve(name: str, folder: Path) -> dict[str, Any] | None:
    """Metrics by epoch; None if no epoch was evaluated."""
    records = [
        {
            "epoch": record["epoch"],
            "train_loss": record.get("train_loss"),
            "auc": (record.get("validation") or {}).get("auc"),
            "logloss": (record.get("validation") or {}).get("logloss"),
        }
        for record in _records(folder)
    ]
    measured = [record for record in records if record["auc"] is not None]
    if not measured:
        return None
    return {"stage": name, "records": records, "best": max(measured, key=lambda record: record["auc"])}


def _tickets(run: Run) -> list[dict[str, Any]]:
    """Budget, step and size of each ticket of the search that was used."""
    found = []
    for path in sorted(run.tickets.glob("*/ticket.json")):
        ticket = read_json(path)
        step = (ticket.get("provenance") or {}).get("step")
        found.append({"budget": ticket["budget"], "step": step, "num_kept": ticket["num_parameters"]})
    return found


def _ticket_epochs(search: Sequence[Mapping[str, Any]], tickets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Budget of each ticket, and the epoch of the search in which it was cut."""
    epochs = [(record["step"], record["epoch"]) for record in search]
    return [
        {"budget": ticket["budget"], "epoch": next((e for step, e in epochs if step >= ticket["step"]), epochs[-1][1])}
        for ticket in tickets
        if ticket["step"] is not None
    ]
