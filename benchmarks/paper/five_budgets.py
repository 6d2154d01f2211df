"""Five budgets, FM on MovieLens-1M: timed, and the ways to them that are compared.

A timed run is a search and its retrainings: `search_seconds`, `search_epochs`, `retrain_seconds`, `retrain_epochs` and
`points`, what came of it.
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
from thresher.baselines.darts_emb import DartsEmbConfig
from thresher.cli.progress import display
from thresher.experiment.runs import Run, RunConfig
from thresher.experiment.stages import batches, encode_data, find_run_tickets, retrain_run_ticket
from thresher.report.frontier import FrontierPoint
from thresher.training.distillation import HARD_LABELS
from thresher.training.history import read_history

SPACES = {"100k": (4, 8, 32), "50k": (4, 8, 32), "30k": (2, 4, 16), "20k": (2, 4, 16), "12k": (1, 2, 8)}
"""Budget → the candidate sizes of the paper that suit it: DartsEmb is searched anew for each."""
STAGES = ("search", "retrain")

TimedRun = Mapping[str, Any]


def time_budgets(settings: PaperSettings, path: Path) -> None:
    """Time PEP's one run and DartsEmb's five with every seed; those in the result file `path` are passed over."""
    told = replace(load_experiment(settings, "movielens-1m/fm/pep-plan"), budgets=tuple(SPACES))

    def add(side: str, seed: int, name: str, config: RunConfig) -> None:
        """Time one run unless it is done."""
        if name not in read_or_start(settings, path, told, pep={}, darts={})[side].get(str(seed), {}):
            made, timed = run_environment(), _timed(settings, config)
            content = read_or_start(settings, path, told, pep={}, darts={})
            content[side].setdefault(str(seed), {})[name] = timed
            write_result(path, content, made)

    for seed in settings.seeds:
        base = replace(told, data=settings.data("movielens-1m"), seed=seed)
        add("pep", seed, "all", base)
        for budget, sizes in SPACES.items():
            embedding = DartsEmbConfig(candidate_sizes=sizes, embedding_dim=sizes[-1])
            add("darts", seed, budget, replace(base, embedding=embedding, budgets=(budget,)))


def _timed(settings: PaperSettings, config: RunConfig) -> TimedRun:
    folder = settings.temporary / "runtime" / digest(config)
    with display() as progress, Run.started(folder, config, resume=True) as run:
        encoded = encode_data(run, progress)
        data = batches(run, encoded)
        tickets = find_run_tickets(run, encoded, data, HARD_LABELS, progress)  # as published
        points = [retrain_run_ticket(run, encoded, data, ticket, HARD_LABELS, progress) for ticket in tickets]
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
    """One way to all budgets: for each seed the timed runs it consists of."""

    name: str
    seeds: Sequence[Sequence[TimedRun]]

    @property
    def runs(self) -> list[TimedRun]:
        return [run for runs in self.seeds for run in runs]

    def seconds(self, stage: str) -> list[float]:
        """Of a stage, seed by seed."""
        return [float(sum(run[f"{stage}_seconds"] for run in runs)) for runs in self.seeds]

    def total_seconds(self) -> list[float]:
        return [sum(stages) for stages in zip(*map(self.seconds, STAGES), strict=True)]

    def search_epochs(self) -> list[float]:
        return [float(sum(run["search_epochs"] for run in runs)) for runs in self.seeds]

    def times(self, other: "Strategy") -> list[float]:
        """How many times another way's searching it takes, seed by seed: seconds vary with the jobs beside them."""
        return [own / its for own, its in zip(self.seconds("search"), other.seconds("search"), strict=True)]

    def auc_text(self, budget: str) -> str:
        points = [FrontierPoint.from_json(point) for run in self.runs for point in run["points"]]
        return next((one.auc_text() for one in group_by_size(points) if one.budget == budget), ABSENT)


@dataclass(frozen=True)
class Strategies:
    """One PEP search for all; DartsEmb searched for each budget; and for each set of candidates."""

    pep: Strategy
    darts: Strategy
    shared: Strategy

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Strategies | None":
        """Of the seeds that have all runs; None while there is none."""
        pep, darts = content.get("pep", {}), content.get("darts", {})
        seeds = [seed for seed in sorted(pep) if len(darts.get(seed, {})) == len(SPACES)]
        if not seeds:
            return None
        return cls(
            Strategy("PEP plan, one search", [[pep[seed]["all"]] for seed in seeds]),
            Strategy("DartsEmb, a search for each budget", [list(darts[seed].values()) for seed in seeds]),
            Strategy("DartsEmb, a search for each set of candidates", [shared_searches(darts[seed]) for seed in seeds]),
        )

    def __iter__(self) -> Iterator[Strategy]:
        return iter((self.pep, self.darts, self.shared))


def shared_searches(runs: Mapping[str, TimedRun]) -> list[TimedRun]:
    """The same runs of DartsEmb by budget, those of one set of candidates sharing the first's search."""
    shared: list[TimedRun] = []
    seen: set[tuple[int, ...]] = set()
    for budget, sizes in SPACES.items():
        free = {"search_seconds": 0.0, "search_epochs": 0} if sizes in seen else {}
        shared.append({**runs[budget], **free})
        seen.add(sizes)
    return shared
