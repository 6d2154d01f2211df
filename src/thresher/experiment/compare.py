"""compare(): every method under every model, at every budget, with every seed; what is done is passed over.

    out/{settings.toml, encoded/, cells/<model>/<method>/, points/<model>/<method>/<budget>-seed<n>.json, frontier-*}

On the first seed each method tries as many settings of its stated grid as every other; the best on validation at each
budget is the method there, for all seeds, and only it is tested. One search serves all budgets of a call, on every seed
and whichever settings won; those of a later call have their own (`searched_together`). The first seed of all methods
comes before the second of any, so that a comparison cut short is even.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from thresher._internal.files import exclusive_lock
from thresher._internal.settings import config_to_mapping, save_toml
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.data.table import EncodedTable
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.method_registry import describe_settings, frontier_points, method_grid
from thresher.embeddings.uniform import UniformConfig
from thresher.experiment.cell import Cell, searched_together
from thresher.experiment.choice import Choice
from thresher.experiment.compare_config import SETTINGS, CompareConfig, check_comparable
from thresher.experiment.compare_figures import draw_comparison
from thresher.experiment.compared_points import FLOOR, ComparedPoint, load_points, machine, versions
from thresher.experiment.deadline import Deadline, TimeIsUpError
from thresher.experiment.runs import RunConfig
from thresher.models.model_registry import model_config
from thresher.search.budget import Budget
from thresher.search.ticket import Ticket
from thresher.training.epochs import CHECKPOINT

if TYPE_CHECKING:
    from thresher.experiment.stages import RunProgress

TEACHER = "teacher"
NO_CHOICE: Mapping[Budget, Choice] = {}


@dataclass(frozen=True)
class Comparison:
    """What a comparison came to.

    Attributes:
        points: every point there is by now, of this call and of earlier ones.
        unmet: (model, method, budget) → why no settings tried can meet it.
        finished: False if the time limit came first; the same call goes on from there.
        figures: what was drawn, one per model and format.
    """

    points: Sequence[ComparedPoint]
    unmet: Mapping[tuple[str, str, str], str]
    finished: bool
    figures: Sequence[Path]


def compare(
    config: CompareConfig, *, out: str | Path, time_limit: float | None = None, progress: "RunProgress | None" = None
) -> Comparison:
    """Run, or go on with, a comparison.

    Args:
        config: what is compared. Methods, models, budgets and seeds may grow from call to call; data, search, training,
            teacher, width and trials must stay. Budgets that came together stay together: see `searched_together`.
        out: folder of the comparison.
        time_limit: seconds after which it stops, with everything kept.
    """
    sweep = _Sweep(config, Path(out), Deadline(time_limit, progress))
    finished = True
    try:
        with exclusive_lock(Path(out)):
            sweep.run()
    except TimeIsUpError:
        finished = False
    except KeyboardInterrupt:
        if not sweep.deadline.passed:
            raise
        finished = False
    points = load_points(sweep.points_folder)
    return Comparison(
        points, sweep.unmet, finished, draw_comparison(points, lambda model: Path(out) / f"frontier-{model}")
    )


class _Sweep:
    """A comparison on its way."""

    def __init__(self, config: CompareConfig, out: Path, deadline: Deadline) -> None:
        self.config, self.out, self.deadline = config, out, deadline
        self.points_folder = out / "points"
        self.budgets: dict[Budget, str] = {}  # as methods are given them → as the user wrote them
        self.together: Mapping[Budget, Sequence[Budget]] = {}  # budget → all that share its search
        self.unmet: dict[tuple[str, str, str], str] = {}
        self.place = ""  # which of how many, among models, methods and seeds

    def run(self) -> None:
        check_comparable(self.config, self.out / SETTINGS)
        save_toml(self.config, self.out / SETTINGS)
        table = encode(build_source(self.config.data), self.out / "encoded", progress=self.deadline.encoding)
        self.budgets = self.config.budgets_for(table.schema.num_features)
        self.together = searched_together(self.budgets, self.out / "cells" / "searches.json")
        places = list(product(self.config.seed_numbers, self.config.models, self.config.methods))
        for at, (seed, model, method) in enumerate(places, 1):
            self.place = f"{at}/{len(places)}"
            self._floor(table, seed)
            self._own_points(table, model, method, seed)
            self._budget_points(table, model, method, seed)

    def _tell(self, model: str, method: str, seed: int, what: str) -> None:
        """Name what is trained next, for whoever watches."""
        self.deadline.about = " · ".join([self.place, model, method, f"seed {seed}", what])

    def _floor(self, table: EncodedTable, seed: int) -> None:
        path = self.points_folder / FLOOR / FLOOR / f"floor-seed{seed}.json"
        if not path.exists():
            self._tell(FLOOR, "no embedding", seed, "the floor")
            cell = self._cell(table, FLOOR, FLOOR, UniformConfig(embedding_dim=1), seed)
            self._write({None: path}, cell, FLOOR, FLOOR)

    def _own_points(self, table: EncodedTable, model: str, method: str, seed: int) -> None:
        for embedding in frontier_points(method):
            path = self._point(model, method, f"d{embedding.embedding_dim}", seed)
            if not path.exists():
                self._tell(model, method, seed, f"width {embedding.embedding_dim}")
                cell = self._cell(table, model, method, embedding, seed)
                self._write({None: path}, cell, model, method)

    def _budget_points(self, table: EncodedTable, model: str, method: str, seed: int) -> None:
        paths = {
            budget: self._point(model, method, Budget.parse(written).slug, seed)
            for budget, written in self.budgets.items()
        }
        missing = [budget for budget, path in paths.items() if not path.exists()]
        choices = {budget: self._choose(table, model, method, budget) for budget in missing}
        chosen = {budget: best for budget, choice in choices.items() if (best := choice.best()) is not None}
        for embedding in dict.fromkeys(chosen.values()):
            wanted = [budget for budget, best in chosen.items() if best == embedding]
            self._tell(model, method, seed, f"chosen: {describe_settings(embedding, method_grid(method))}")
            cell = self._cell(table, model, method, embedding, seed)
            for ticket, budgets in _by_ticket({b: cell.find(b, self.together[b])[0] for b in wanted}):
                self._write({budget: paths[budget] for budget in budgets}, cell, model, method, ticket, choices)
        for budget in missing:
            if budget not in chosen:
                self.unmet[(model, method, self.budgets[budget])] = choices[budget].why_unmet
        for checkpoint in self._cells(model, method).glob(f"*-seed{self.config.first_seed}/retrained-*/{CHECKPOINT}"):
            checkpoint.unlink()  # of settings that were only tried

    def _choose(self, table: EncodedTable, model: str, method: str, budget: Budget) -> Choice:
        """Try as many settings as every method may, from the front of its grid; what was tried before is read."""
        path = self._cells(model, method) / f"choice-{budget.slug}.json"
        choice = Choice.load(path)
        if choice.covers(self.config.trials):
            return choice
        choice = Choice()
        grid = method_grid(method)
        for embedding in grid:
            if choice.covers(self.config.trials):
                break
            trial = f"trial {choice.num_tried + 1}/{min(self.config.trials, len(grid))}"
            self._tell(model, method, self.config.first_seed, f"{trial}: {describe_settings(embedding, grid)}")
            cell = self._cell(table, model, method, embedding, self.config.first_seed)
            choice.add(cell, *cell.find(budget, self.together[budget]))
        else:
            choice.exhausted = True
        choice.save(path)
        return choice

    def _write(
        self,
        paths: Mapping[Budget | None, Path],
        cell: Cell,
        model: str,
        method: str,
        ticket: Ticket | None = None,
        choices: Mapping[Budget, Choice] = NO_CHOICE,
    ) -> None:
        """Test the chosen settings once, and write down the points they are: one for each budget they serve."""
        outcome = cell.train(ticket, test=True)
        assert outcome.test is not None, "an encoded table has a test split"
        embedding = cell.run.embedding if ticket is None else ticket.embedding_config(cell.run.embedding)
        for budget, path in paths.items():
            searched = (0.0, 0) if budget is None else cell.searched(budget)
            ComparedPoint(
                source=_source_name(self.config),
                model=model,
                method=method,
                config={} if method == FLOOR else config_to_mapping(embedding),
                seed=cell.run.seed,
                budget=None if budget is None else self.budgets[budget],
                num_parameters=outcome.num_parameters,
                storage_bytes=outcome.storage_bytes,
                validation_auc=outcome.validation.auc,
                validation_logloss=outcome.validation.logloss,
                test_auc=outcome.test.auc,
                test_logloss=outcome.test.logloss,
                seconds=searched[0] + outcome.seconds,
                search_seconds=searched[0],
                search_epochs=searched[1],
                retrain_seconds=outcome.seconds,
                retrain_epochs=outcome.num_epochs,
                teacher_share=0.0 if cell.soft_labels is None else self.config.teacher_share,
                trials=[] if budget is None else choices[budget].trials,
                versions=versions(),
                machine=machine(),
            ).save(path)
        cell.forget(ticket)

    def _cell(self, table: EncodedTable, model: str, method: str, embedding: EmbeddingConfig, seed: int) -> Cell:
        run = RunConfig(
            data=self.config.data,
            model=model_config(model, self.config.data.source),
            embedding=embedding,
            search=self.config.search,
            training=self.config.training,
            teacher_share=self.config.teacher_share,
            seed=seed,
        )
        taught = self.config.teacher_share and model != FLOOR
        soft_labels = self._soft_labels(table, run, model) if taught else None
        return Cell.of(self._cells(model, method), run, table, self.deadline, soft_labels=soft_labels)

    def _soft_labels(self, table: EncodedTable, run: RunConfig, model: str) -> Path:
        """The labels all methods learn from under a model and seed, made by a plain table trained before them."""
        plain = replace(run, embedding=UniformConfig(embedding_dim=self.config.embedding_dim))
        teacher = Cell.of(self.out / "cells" / model / TEACHER, plain, table, self.deadline)
        about = self.deadline.about
        self._tell(model, TEACHER, run.seed, f"width {self.config.embedding_dim}")
        path = teacher.teach()
        self.deadline.about = about
        return path

    def _cells(self, model: str, method: str) -> Path:
        return self.out / "cells" / model / method

    def _point(self, model: str, method: str, size: str, seed: int) -> Path:
        return self.points_folder / model / method / f"{size}-seed{seed}.json"


def _by_ticket(tickets: Mapping[Budget, Ticket | None]) -> list[tuple[Ticket, list[Budget]]]:
    """Each ticket once, with the budgets it serves."""
    served: dict[Budget, tuple[Ticket, list[Budget]]] = {}
    for budget, ticket in tickets.items():
        if ticket is not None:
            served.setdefault(ticket.budget, (ticket, []))[1].append(budget)
    return list(served.values())


def _source_name(config: CompareConfig) -> str:
    return config.data.source if config.data.source != "files" else ",".join(config.data.paths)
