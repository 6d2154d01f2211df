"""Example result files: a few numbers for every part that compares methods."""

from paper.five_budgets import SPACES
from thresher._internal.storage.files import write_json
from thresher.report.frontier import FrontierPoint
from thresher.search.budget import Budget

MADE_WITH = [{"commit": "abc1234", "changed_tree": False, "machine": {"cores": 2, "threads": 1}}]


def point(auc, *, label="pep", budget=None, size=1000, seed=0, **more):
    made = FrontierPoint(
        label=label, budget=budget, num_parameters=size, storage_bytes=5 * size, validation_auc=auc,
        validation_logloss=0.4, test_auc=auc, test_logloss=0.4, seed=seed,
    )  # fmt: skip
    return made.to_json() | more


def pruned(path, aucs, *, dense=0.85):
    """Write a result of `benchmarks/run.py`: budget → test AUC of each seed."""
    seeds = range(len(next(iter(aucs.values()))))
    content = {
        str(seed): {
            "format_version": 1,
            "dense": point(dense, label="dense", size=100_000, seed=seed),
            "points": [
                point(of_seeds[seed], budget=budget, size=int(Budget.parse(budget).amount), seed=seed)
                for budget, of_seeds in aucs.items()
            ],
        }
        for seed in seeds
    }
    write_json(path.with_suffix(".json"), {"experiment": path.name, "config": {}, "seeds": content})


def write_results(folder):
    pruned(folder / "experiments/movielens-1m/fm/pep-plan", {"20k": [0.850, 0.852], "6541": [0.840, 0.841]})
    pruned(folder / "experiments/movielens-1m/fm/pep-decay", {"30k": [0.849]})
    compared = [
        point(0.849, label="uniform", size=265_000, model="fm", search_seconds=0.0, retrain_seconds=30.0),
        *(
            point(
                auc,
                label=label,
                budget="20k",
                size=size,
                seed=seed,
                model="fm",
                search_seconds=60.0,
                retrain_seconds=2.0,
            )
            for label, size, aucs in (
                ("pep", 20_000, (0.850, 0.852)),
                ("magnitude", 20_000, (0.851, 0.8528)),
                ("gradual-magnitude", 20_000, (0.853,)),
                ("mde", 9_000, (0.830, 0.832)),
            )
            for seed, auc in enumerate(aucs)
        ),
        point(0.79, label="lr", size=0, model="lr", search_seconds=0.0, retrain_seconds=5.0),
    ]
    write_json(
        folder / "frontier/fm.json",
        {
            "config": {"training": {"max_epochs": 60}},
            "done": {},
            "points": compared,
            "unmet": {"mgqe 6541": "why"},
            "made_with": MADE_WITH,
        },
    )
    small = [
        point(auc, label=label, budget=budget, size=size, seed=seed, model="fm")
        for label, budget, size, aucs in (
            ("pep", "40k", 40_000, (0.767, 0.768)),
            ("pep", "4k", 4_000, (0.765, 0.766)),
            ("uniform", "40k", 39_000, (0.763, 0.764)),
            ("mde", "40k", 5_000, (0.765, 0.766)),
        )
        for seed, auc in enumerate(aucs)
    ]
    small.append(point(0.764, label="lr", size=0, model="lr"))
    write_json(
        folder / "frontier_small/criteo-fm.json",
        {"config": {}, "done": {}, "points": small, "unmet": {"mde 4k": "why"}, "made_with": MADE_WITH},
    )
    for source in ("movielens-1m", "criteo", "avazu"):
        write_json(folder / f"lr/{source}.json", {"points": {"0": point(0.76, label="dense", size=0)}})
        write_json(
            folder / f"data_statistics/{source}.json",
            {
                "num_rows": {"train": 80, "validation": 10, "test": 10},
                "positive_share": {"train": 0.25, "test": 0.25},
                "num_features": 44,
                "fields": [{"name": "a"}, {"name": "b"}],
                "frequency_curve": [[1, 50], [10, 5], [44, 1]],
                "made_with": MADE_WITH,
            },
        )
    for model in ("fm", "deepfm"):
        pruned(folder / f"experiments/criteo-small/{model}/pep-plan", {"16k": [0.768], "1067": [0.763]})
        for width in (4, 64):
            path = folder / f"criteo_small/{model}-dense-{width}.json"
            write_json(path, {"points": {"0": point(0.764 - width / 1e4, label="dense", size=1000 * width)}})
    sides = {
        f"{model}, {side}": {"milliseconds": 1.0, "epoch_seconds": seconds}
        for model in ("fm", "deepfm", "autoint")
        for side, seconds in (
            ("base_dense", 100.0), ("darts_dense", 210.0), ("pep_published", 2500.0), ("base_rows", 20.0),
            ("pep_rows", 25.0),
        )
    }  # fmt: skip
    shape = {
        "num_features": 10,
        "embedding_dim": 4,
        "num_fields": 2,
        "batch_size": 8,
        "steps_per_epoch": 5,
        "threads": 1,
        "candidate_sizes": [1, 4],
    }
    write_json(folder / "runtime/steps.json", {"settings": shape, "machine": {"cpu": "a cpu"}, "sides": sides})
    one = {"search_seconds": 50.0, "search_epochs": 30, "retrain_seconds": 100.0, "retrain_epochs": 60}
    budgets = SPACES
    write_json(
        folder / "runtime/five_budgets.json",
        {
            "config": {"search": {"max_epochs": 60}, "training": {"max_epochs": 60}},
            "pep": {"0": {"all": one | {"points": [point(0.85, budget=budget) for budget in budgets]}}},
            "darts": {"0": {budget: one | {"points": [point(0.84, budget=budget)]} for budget in budgets}},
            "made_with": MADE_WITH,
        },
    )
