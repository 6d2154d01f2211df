"""compare(): every method under every model, at every budget and seed; finished results are skipped.

    out/{settings.toml, encoded/, cells/<model>/<method>/, points/<model>/<method>/<budget>-seed<n>.json, frontier-*}

On the first seed each method tries the same number of settings from its grid; the settings with the best validation
AUC at a budget are used for all seeds, and only they are tested. One search serves all budgets of a call. The first
seed of all methods comes before the second of any, so that an interrupted comparison is balanced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from time import monotonic

from thresher._internal.files import exclusive_lock
from thresher._internal.settings import config_to_mapping, save_toml
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.data.table import EncodedTable
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.method_registry import describe_settings, frontier_points, method_grid
from thresher.embeddings.uniform import UniformConfig
from thresher.errors import TimeLimitReached
from thresher.experiment.compare_cell import Cell, Choice, searched_together
from thresher.experiment.compare_config import SETTINGS, CompareConfig, check_comparable
from thresher.experiment.compared_points import FLOOR, ComparedPoint, draw_comparison, load_points, machine, versions
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import RunProgress
from thresher.models.model_registry import model_config
from thresher.search.budget import Budget
from thresher.search.ticket import Ticket
from thresher.training.epochs import CHECKPOINT
from thresher.training.progress import ProgressState

TEACHER = "teacher"
NO_CHOICE: Mapping[Budget, Choice] = {}


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    Attributes:
        points: every point in the folder, of this call and of earlier ones.
        unmet: (model, method, budget) → why no settings that were tried can meet it.
        finished: False if the time limit was reached; the same call continues from there.
        figures: the files drawn, one per model and format.
    """

    points: Sequence[ComparedPoint]
    unmet: Mapping[tuple[str, str, str], str]
    finished: bool
    figures: Sequence[Path]


def compare(
    config: CompareConfig, *, out: str | Path, time_limit: float | None = None, progress: RunProgress | None = None
) -> Comparison:
    """Run or continue a comparison.

    Args:
        config: what is compared. Methods, models, budgets and seeds may grow from call to call; data, search, training,
            teacher, width and trials must stay. Budgets of one call share a search: see `searched_together`.
        out: folder of the comparison.
        time_limit: seconds after which it stops; finished work and the checkpoint of an unfinished training are kept.
    """
    sweep = _Sweep(config, Path(out), _Display(progress), time_limit)
    finished = True
    with exclusive_lock(Path(out)):
        try:
            sweep.run()
        except TimeLimitReached:
            finished = False
    points = load_points(sweep.points_folder)
    figures = draw_comparison(points, lambda model: Path(out) / f"frontier-{model}")
    return Comparison(points, sweep.unmet, finished, figures)


class _Display:
    """Forwards progress with the name of what is trained before the name of each stage."""

    def __init__(self, progress: RunProgress | None) -> None:
        self.progress, self.title = progress, ""

    def update(self, state: ProgressState) -> None:
        if self.progress is not None:
            self.progress.update(replace(state, stage=f"{self.title} · {state.stage}") if self.title else state)

    def encoding(self, done: int, total: int | None, message: str) -> None:
        if self.progress is not None:
            self.progress.encoding(done, total, message)


class _Sweep:
    """The loop over seeds, models and methods."""

    def __init__(self, config: CompareConfig, out: Path, display: _Display, time_limit: float | None) -> None:
        self.config, self.out, self.display = config, out, display
        self.end = None if time_limit is None else monotonic() + time_limit
        self.points_folder = out / "points"
        self.budgets: dict[Budget, str] = {}  # in parameters or bytes → as the user wrote them
        self.together: Mapping[Budget, Sequence[Budget]] = {}  # budget → all budgets of its search
        self.unmet: dict[tuple[str, str, str], str] = {}
        self.place = ""  # number of the current model, method and seed

    def run(self) -> None:
        check_comparable(self.config, self.out / SETTINGS)
        save_toml(self.config, self.out / SETTINGS)
        table = encode(build_source(self.config.data), self.out / "encoded", progress=self.display.encoding)
        self.budgets = self.config.budgets_for(table.schema.num_features)
        self.together = searched_together(self.budgets, self.out / "cells" / "searches.json")
        places = list(product(self.config.seed_numbers, self.config.models, self.config.methods))
        for at, (seed, model, method) in enumerate(places, 1):
            self.place = f"{at}/{len(places)}"
            self._floor(table, seed)
            self._own_points(table, model, method, seed)
            self._budget_points(table, model, method, seed)

    def time_is_up(self) -> bool:
        return self.end is not None and monotonic() >= self.end

    def _set_title(self, model: str, method: str, seed: int, what: str) -> None:
        """Name what is trained next in the progress display."""
        self.display.title = " · ".join([self.place, model, method, f"seed {seed}", what])

    def _floor(self, table: EncodedTable, seed: int) -> None:
        path = self.points_folder / FLOOR / FLOOR / f"floor-seed{seed}.json"
        if not path.exists():
            self._set_title(FLOOR, "no embedding", seed, "floor")
            cell = self._cell(table, FLOOR, FLOOR, UniformConfig(embedding_dim=1), seed)
            self._write({None: path}, cell, FLOOR, FLOOR)

    def _own_points(self, table: EncodedTable, model: str, method: str, seed: int) -> None:
        for embedding in frontier_points(method):
            path = self._point(model, method, f"d{embedding.embedding_dim}", seed)
            if not path.exists():
                self._set_title(model, method, seed, f"width {embedding.embedding_dim}")
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
            self._set_title(model, method, seed, f"chosen: {describe_settings(embedding, method_grid(method))}")
            cell = self._cell(table, model, method, embedding, seed)
            for ticket, budgets in _by_ticket({b: cell.find(b, self.together[b])[0] for b in wanted}):
                self._write({budget: paths[budget] for budget in budgets}, cell, model, method, ticket, choices)
        for budget in missing:
            if budget not in chosen:
                self.unmet[(model, method, self.budgets[budget])] = choices[budget].why_unmet
        for checkpoint in self._cells(model, method).glob(f"*-seed{self.config.first_seed}/retrained-*/{CHECKPOINT}"):
            checkpoint.unlink()  # settings that were only tried

    def _choose(self, table: EncodedTable, model: str, method: str, budget: Budget) -> Choice:
        """Try the allowed number of settings from the front of the grid; earlier trials are read from their files."""
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
            self._set_title(model, method, self.config.first_seed, f"{trial}: {describe_settings(embedding, grid)}")
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
        """Test the chosen settings once, and write a point for each budget they serve."""
        trained = cell.train(ticket, test=True)
        assert trained.test is not None, "an encoded table has a test split"
        embedding = cell.run.embedding if ticket is None else ticket.embedding_config(cell.run.embedding)
        for budget, path in paths.items():
            search_seconds, search_epochs = (0.0, 0) if budget is None else cell.search_cost(budget)
            ComparedPoint(
                source=_source_name(self.config),
                model=model,
                method=method,
                config={} if method == FLOOR else config_to_mapping(embedding),
                seed=cell.run.seed,
                budget=None if budget is None else self.budgets[budget],
                num_parameters=trained.num_parameters,
                storage_bytes=trained.storage_bytes,
                validation_auc=trained.fit.validation.auc,
                validation_logloss=trained.fit.validation.logloss,
                test_auc=trained.test.auc,
                test_logloss=trained.test.logloss,
                seconds=search_seconds + trained.fit.seconds,
                search_seconds=search_seconds,
                search_epochs=search_epochs,
                retrain_seconds=trained.fit.seconds,
                retrain_epochs=trained.fit.num_epochs,
                teacher_share=0.0 if cell.soft_labels is None else self.config.teacher_share,
                trials=[] if budget is None else choices[budget].trials,
                versions=versions(),
                machine=machine(),
            ).save(path)
        cell.delete_checkpoint(ticket)

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
        distilled = self.config.teacher_share and model != FLOOR
        soft_labels = self._soft_labels(table, run, model) if distilled else None
        return self._new_cell(self._cells(model, method), run, table, soft_labels)

    def _new_cell(self, parent: Path, run: RunConfig, table: EncodedTable, soft_labels: Path | None = None) -> Cell:
        return Cell.of(parent, run, table, soft_labels=soft_labels, progress=self.display, should_stop=self.time_is_up)

    def _soft_labels(self, table: EncodedTable, run: RunConfig, model: str) -> Path:
        """The soft labels that all methods share under a model and seed, from a uniform table trained first."""
        uniform = replace(run, embedding=UniformConfig(embedding_dim=self.config.embedding_dim))
        teacher = self._new_cell(self.out / "cells" / model / TEACHER, uniform, table)
        title = self.display.title
        self._set_title(model, TEACHER, run.seed, f"width {self.config.embedding_dim}")
        path = teacher.make_soft_labels()
        self.display.title = title
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
