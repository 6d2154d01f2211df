"""Post-training pruning of the dense models of finished runs: AUC of every score and placeholder, and what it costs.

    python benchmarks/run.py benchmarks/experiments/movielens-1m/fm/effort-standard.toml --seeds 0
    python benchmarks/post_training.py benchmarks/temporary/movielens-1m/fm/effort-standard/0

Each run is one seed. Costs are CPU seconds, in units of the dense training. With --fine-tune, the best score on
validation is also the start of a fine-tuning with the settings of the run.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

from environment import run_environment
from run import RESULTS, spread
from thresher._internal.storage.files import read_json, write_json
from thresher.baselines.post_training import PostTrainingConfig
from thresher.data.table import EncodedTable
from thresher.experiment.dense_start import DenseStart
from thresher.experiment.retrain import evaluate_trained, retrain_ticket
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_models import new_model, shuffled_batches
from thresher.models.model_registry import model_name
from thresher.search.find_tickets import find_tickets
from thresher.search.schedule import SearchConfig
from thresher.training.checkpoint import read_history
from thresher.training.distillation import SoftLabels
from thresher.training.run_state import HISTORY

SCORES, PLACEHOLDERS = ("magnitude", "taylor", "fisher", "shapley"), ("zeros", "field-mean")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--budgets", help="comma-separated; by default those of the run")
    parser.add_argument("--fine-tune", action="store_true")
    arguments = parser.parse_args()
    for folder in arguments.runs:
        run = Run.open(folder)
        budgets = arguments.budgets.split(",") if arguments.budgets else list(run.config.budgets)
        target = RESULTS / "post_training" / f"{run.config.data.source}-{model_name(run.config.model)}.json"
        result = read_json(target) if target.exists() else {"seeds": {}}
        result["seeds"][str(run.config.seed)] = measure(run, budgets, fine_tune=arguments.fine_tune)
        result["summary"] = summary(result["seeds"].values())
        write_json(target, result)
        for row in result["summary"]:
            print({name: row[name] if isinstance(row[name], str) else round(row[name]["mean"], 4) for name in row})


def measure(run: Run, budgets: list[str], *, fine_tune: bool) -> dict[str, Any]:
    """All points of one seed."""
    table = EncodedTable.open(run.encoded)
    data, start = shuffled_batches(run.config, table), DenseStart.load(run.dense_weights)
    dense_seconds = sum(record["cpu_seconds"] for record in read_history(run.dense / HISTORY))
    points: list[dict[str, Any]] = []
    tickets: dict[tuple[str, str, str], Any] = {}
    for placeholder in PLACEHOLDERS:
        for score in SCORES:
            embedding = PostTrainingConfig(
                embedding_dim=run.config.embedding.embedding_dim, score=score, placeholder=placeholder
            )
            model = new_model(run.config, table, embedding)
            start.load_into_(model, data.feature_counts)
            began = process_time()
            found = find_tickets(model, data, budgets, SearchConfig(start="dense"), seed=run.config.seed)
            spent = process_time() - began
            for ticket in found:
                pruned = new_model(run.config, table, embedding)
                ticket.apply_(pruned, rewind="final")
                trained = evaluate_trained(pruned, data)
                assert trained.test is not None
                tickets[score, placeholder, str(ticket.budget)] = ticket
                points.append(
                    {
                        "score": score,
                        "placeholder": placeholder,
                        "budget": str(ticket.budget),
                        "validation_auc": trained.fit.validation.auc,
                        "test_auc": trained.test.auc,
                        "over_dense": spent / dense_seconds,
                    }
                )
    if fine_tune:
        points += [_fine_tuned(run, table, data, start, points, tickets, dense_seconds, budget) for budget in budgets]
    return {"dense_cpu_seconds": dense_seconds, "points": points, "made_with": run_environment()}


def _fine_tuned(
    run: Run, table: Any, data: Any, start: Any, points: Any, tickets: Any, dense: float, budget: str
) -> Any:
    """The best score on validation at one budget, then the retraining of the run's effort."""
    best = max((p for p in points if p["budget"] == budget), key=lambda point: point["validation_auc"])
    ticket = tickets[best["score"], best["placeholder"], budget]
    labels = SoftLabels.load(run.soft_labels, 1.0) if run.soft_labels.exists() else None
    settings, steps = run.config.stage_settings(), len(data.train)
    config = settings.retraining_config(start.num_epochs, steps, soft_labels=labels is not None)
    model = new_model(run.config, table, PostTrainingConfig(embedding_dim=run.config.embedding.embedding_dim))
    began = process_time()
    trained = retrain_ticket(
        ticket, model, replace(data, test=None), config, rewind="final", seed=run.config.seed, soft_labels=labels
    )
    spent = process_time() - began
    test = evaluate_trained(trained.model, data).test
    assert test is not None
    return {
        **best,
        "score": f"{best['score']}, fine-tuned",
        "validation_auc": trained.fit.validation.auc,
        "test_auc": test.auc,
        "over_dense": best["over_dense"] + spent / dense,
        "epochs": trained.fit.num_epochs,
    }


def summary(seeds: Any) -> list[dict[str, Any]]:
    """Means and standard deviations over seeds."""
    grouped: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for seed in seeds:
        for point in seed["points"]:
            grouped.setdefault((point["score"], point["placeholder"], point["budget"]), []).append(point)
    names = ("validation_auc", "test_auc", "over_dense")
    return [
        {"score": score, "placeholder": placeholder, "budget": budget}
        | {name: spread([point[name] for point in points]) for name in names}
        for (score, placeholder, budget), points in grouped.items()
    ]


if __name__ == "__main__":
    main()
