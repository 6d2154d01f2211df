"""Five budgets for FM on MovieLens-1M: timed runs of PEP and DartsEmb, and the strategies that are compared.

A timed run is a search and its retrainings: `search_seconds`, `search_epochs`, `retrain_seconds`, `retrain_epochs` and
the resulting `points`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from environment import run_environment
from paper.experiments import digest, load_experiment
from paper.markdown import ABSENT
from paper.result_files import read_or_start, write_result
from paper.settings import PaperSettings
from paper.verdicts.groups import group_by_size
from thresher.baselines.candidate_sizes import DartsEmbConfig
from thresher.cli.console import display
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import encode_data
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_workflow import RunWorkflow
from thresher.report.frontier import FrontierPoint
from thresher.training.checkpoint import read_history
from thresher.training.distillation import HARD_LABELS

SPACES = {"100k": (4, 8, 32), "50k": (4, 8, 32), "30k": (2, 4, 16), "20k": (2, 4, 16), "12k": (1, 2, 8)}
"""Budget → suitable candidate sizes of the paper; DartsEmb runs one search for each budget."""
STAGES = ("search", "retrain")

TimedRun = Mapping[str, Any]


def time_budgets(settings: PaperSettings, path: Path) -> None:
    """Time one run of PEP and five of DartsEmb for every seed; runs in the result file `path` are skipped."""
    config = replace(load_experiment(settings, "movielens-1m/fm/pep-plan"), budgets=tuple(SPACES))

    def add(method: str, seed: int, name: str, run_config: RunConfig) -> None:
        """Time one run unless it is in the result file."""
        if name not in read_or_start(settings, path, config, pep={}, darts={})[method].get(str(seed), {}):
            environment, timed = run_environment(), _timed(settings, run_config)
            content = read_or_start(settings, path, config, pep={}, darts={})
            content[method].setdefault(str(seed), {})[name] = timed
            write_result(path, content, environment)

    for seed in settings.seeds:
        base = replace(config, data=settings.data("movielens-1m"), seed=seed)
        add("pep", seed, "all", base)
        for budget, sizes in SPACES.items():
            embedding = DartsEmbConfig(candidate_sizes=sizes, embedding_dim=sizes[-1])
            add("darts", seed, budget, replace(base, embedding=embedding, budgets=(budget,)))


def _timed(settings: PaperSettings, config: RunConfig) -> TimedRun:
    folder = settings.temporary / "runtime" / digest(config)
    with display() as progress, Run.started(folder, config, resume=True) as run:
        encoded = encode_data(run.config.data, run.encoded, progress)
        workflow = RunWorkflow.of(run, encoded, progress)
        tickets = workflow.find_tickets(HARD_LABELS)  # as published
        points = [workflow.prune_to(ticket, HARD_LABELS) for ticket in tickets]
    searched = read_history(run.tickets / "history.jsonl")
    retrained = [
        record
        for ticket in tickets
        for record in read_history(run.retrained(ticket.budget) / str(HARD_LABELS) / "history.jsonl")
    ]
    return {
        "search_seconds": sum(record["seconds"] for record in searched),
        "search_epochs": len(searched),
        "retrain_seconds": sum(record["seconds"] for record in retrained),
        "retrain_epochs": len(retrained),
        "points": [point.to_json() for point in points],
    }


@dataclass(frozen=True)
class Strategy:
    """A way to serve all budgets: the timed runs of each seed."""

    name: str
    seeds: Sequence[Sequence[TimedRun]]

    @property
    def runs(self) -> list[TimedRun]:
        return [run for runs in self.seeds for run in runs]

    def seconds(self, stage: str) -> list[float]:
        """Return the seconds of a stage for each seed."""
        return [float(sum(run[f"{stage}_seconds"] for run in runs)) for runs in self.seeds]

    def total_seconds(self) -> list[float]:
        return [sum(stages) for stages in zip(*map(self.seconds, STAGES), strict=True)]

    def search_epochs(self) -> list[float]:
        return [float(sum(run["search_epochs"] for run in runs)) for runs in self.seeds]

    def times(self, other: "Strategy") -> list[float]:
        """Return the search time as a multiple of another strategy's, by seed, because machine load varies."""
        return [own / its for own, its in zip(self.seconds("search"), other.seconds("search"), strict=True)]

    def auc_text(self, budget: str) -> str:
        points = [FrontierPoint.from_json(point) for run in self.runs for point in run["points"]]
        return next((one.auc_text() for one in group_by_size(points) if one.budget == budget), ABSENT)


@dataclass(frozen=True)
class Strategies:
    """One PEP search; one DartsEmb search per budget; one DartsEmb search per set of candidates."""

    pep: Strategy
    darts: Strategy
    shared: Strategy

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Strategies | None":
        """Return the strategies of the seeds that have all runs; None if there is no such seed."""
        pep, darts = content.get("pep", {}), content.get("darts", {})
        seeds = [seed for seed in sorted(pep) if len(darts.get(seed, {})) == len(SPACES)]
        if not seeds:
            return None
        return cls(
            Strategy("PEP plan, one search", [[pep[seed]["all"]] for seed in seeds]),
            Strategy("DartsEmb, one search per budget", [list(darts[seed].values()) for seed in seeds]),
            Strategy("DartsEmb, one search per set of candidates", [shared_searches(darts[seed]) for seed in seeds]),
        )

    def __iter__(self) -> Iterator[Strategy]:
        return iter((self.pep, self.darts, self.shared))


def shared_searches(runs: Mapping[str, TimedRun]) -> list[TimedRun]:
    """Return the runs of DartsEmb by budget, where budgets with the same candidates share the first search."""
    shared: list[TimedRun] = []
    seen: set[tuple[int, ...]] = set()
    for budget, sizes in SPACES.items():
        free = {"search_seconds": 0.0, "search_epochs": 0} if sizes in seen else {}
        shared.append({**runs[budget], **free})
        seen.add(sizes)
    return shared
