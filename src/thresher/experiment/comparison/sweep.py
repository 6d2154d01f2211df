"""Sweep: the loop of a comparison over seeds, models and methods.

On the first seed each method tries the same number of settings from its grid; the settings with the best validation
AUC at a budget are used for all seeds, and only they are tested. One search serves all budgets of a call. The first
seed of all methods comes before the second of any, so that an interrupted comparison is balanced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from time import monotonic

import polars as pl

from thresher._internal.settings import config_to_mapping, save_toml
from thresher._internal.storage.files import remove
from thresher.baselines.frequent import FrequentConfig, min_count_of
from thresher.data.table import EncodedTable
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.method_registry import describe_settings, frontier_points, method_grid
from thresher.embeddings.uniform import UniformConfig
from thresher.errors import ThresherError, TimeLimitReached
from thresher.experiment.comparison.choice import Choice
from thresher.experiment.comparison.compare_cell import Cell, searched_together
from thresher.experiment.comparison.compare_config import RIVAL, SETTINGS, CompareConfig, check_comparable
from thresher.experiment.comparison.compared_points import (
    ComparedPoint,
    machine,
    versions,
)
from thresher.experiment.config import RunConfig
from thresher.experiment.data_argument import store_frame
from thresher.experiment.floor import NO_EMBEDDING
from thresher.experiment.prune import encode_data
from thresher.experiment.retrain import TrainedModel
from thresher.experiment.run.threads import note_threads
from thresher.experiment.run.verify import repair
from thresher.models.model_registry import FLOOR, model_config
from thresher.search.budget import Budget
from thresher.search.ticket import Ticket
from thresher.training.metrics import standard_error
from thresher.training.progress import Grouped
from thresher.training.run_state import CHECKPOINT, HISTORY

TEACHER = "teacher"


class Sweep:
    """The loop over seeds, models and methods."""

    def __init__(self, config: CompareConfig, out: Path, display: Grouped, time_limit: float | None) -> None:
        self.config, self.out, self.display = config, out, display
        self.end = None if time_limit is None else monotonic() + time_limit
        self.points_folder = out / "points"
        self.budgets: dict[Budget, str] = {}  # in parameters or bytes → as the user wrote them
        self.written: dict[Budget, str] = {}  # the same, and the budgets of the rival
        self.together: dict[Budget, Sequence[Budget]] = {}  # budget → all budgets of its search
        self.unmet: dict[tuple[str, str, str], str] = {}
        self.place = ""  # number of the current model, method and seed

    def run(self, frame: pl.DataFrame | None = None) -> None:
        """Run what is not finished. A comparison that is refused before its first training step is deleted again."""
        check_comparable(self.config, self.out / SETTINGS)  # a folder without settings is empty
        fresh = not (self.out / SETTINGS).exists()
        try:
            self._run(frame)
        except TimeLimitReached:
            raise
        except ThresherError:
            if fresh and not any(self.out.rglob(HISTORY)):
                for path in sorted(self.out.iterdir(), key=lambda path: path.name == SETTINGS):  # the settings last
                    remove(path)
            raise

    def _run(self, frame: pl.DataFrame | None) -> None:
        repair(self.out)
        save_toml(self.config, self.out / SETTINGS)
        note_threads(self.out)
        if frame is not None:
            store_frame(frame, self.out)
        table = encode_data(self.config.data, self.out / "encoded", self.display)
        self.budgets = self.config.budgets_for(table.schema.num_features)
        self.written = dict(self.budgets)
        self.together = dict(searched_together(self.budgets, self.out / "cells" / "searches.json"))
        places = list(product(self.config.seed_numbers, self.config.models, self.config.all_methods))
        for at, (seed, model, method) in enumerate(places, 1):
            self.place = f"{at}/{len(places)}"
            self._floor(table, seed)
            self._own_points(table, model, method, seed)
            self._budget_points(table, model, method, seed)
        for checkpoint in (self.out / "cells").rglob(CHECKPOINT):
            checkpoint.unlink()  # of settings that were only tried, or of a killed process

    def time_is_up(self) -> bool:
        return self.end is not None and monotonic() >= self.end

    def _set_title(self, model: str, method: str, seed: int, what: str) -> None:
        """Name what is trained next in the progress display."""
        self.display.title = " · ".join([self.place, model, method, f"seed {seed}", what])

    def _floor(self, table: EncodedTable, seed: int) -> None:
        predictions = self._floor_predictions(seed)
        if not (predictions.exists() and self._point(FLOOR, FLOOR, "floor", seed).exists()):
            self._set_title(FLOOR, NO_EMBEDDING, seed, "floor")
            self._cell(table, FLOOR, FLOOR, UniformConfig(embedding_dim=1), seed).train_as_floor(predictions)

    def _own_points(self, table: EncodedTable, model: str, method: str, seed: int) -> None:
        for embedding in frontier_points(method):
            if not self._point(model, method, f"d{embedding.embedding_dim}", seed).exists():
                self._set_title(model, method, seed, f"width {embedding.embedding_dim}")
                self._cell(table, model, method, embedding, seed).train()

    def _budget_points(self, table: EncodedTable, model: str, method: str, seed: int) -> None:
        """Choose settings for each budget, then run the workflow of each chosen settings for its budgets."""
        budgets = list(self.budgets.items())
        if method == RIVAL:
            budgets = [(self._equal_bytes(model, budget), written) for budget, written in budgets]
            self.written |= dict(budgets)
            self.together |= {budget: (budget,) for budget, _ in budgets}
        missing = [
            budget
            for budget, written in budgets
            if not self._point(model, method, Budget.parse(written).slug, seed).exists()
        ]
        chosen: dict[tuple[EmbeddingConfig, Sequence[Budget]], list[Budget]] = {}
        for budget in missing:
            choice = self._choose(table, model, method, budget)
            if (best := choice.best()) is None:
                self.unmet[(model, method, self.written[budget])] = choice.why_unmet
            else:
                chosen.setdefault((best, self.together[budget]), []).append(budget)
        for (embedding, _), served in chosen.items():
            self._set_title(model, method, seed, f"chosen: {describe_settings(embedding, method_grid(method))}")
            self._cell(table, model, method, embedding, seed, served).run()
        for checkpoint in self._cells(model, method).glob(f"*-seed{self.config.first_seed}/retrained-*/{CHECKPOINT}"):
            checkpoint.unlink()  # settings that were only tried

    def _equal_bytes(self, model: str, budget: Budget) -> Budget:
        """The bytes of the model that the rival is compared with at a budget; the budget itself if there is none."""
        path = self._point(model, self.config.rivalled, Budget.parse(self.budgets[budget]).slug, self.config.first_seed)
        return Budget.parse(f"{ComparedPoint.load(path).storage_bytes}B") if path.exists() else budget

    def _choose(self, table: EncodedTable, model: str, method: str, budget: Budget) -> Choice:
        """Try the allowed number of settings from the front of the grid; earlier trials are read from their files."""
        path = self._choice(model, method, budget)
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
            choice.add(self._cell(table, model, method, embedding, self.config.first_seed, [budget]))
        else:
            choice.exhausted = True
        choice.save(path)
        return choice

    def _write(self, model: str, method: str, cell: Cell, ticket: Ticket | None, trained: TrainedModel) -> None:
        """Write the point of a tested model for each budget it serves."""
        assert trained.test is not None, "an encoded table has a test split"
        embedding = cell.config.embedding if ticket is None else ticket.embedding_config(cell.config.embedding)
        for budget in [None] if ticket is None else cell.served(ticket):
            own_name = "floor" if method == FLOOR else f"d{embedding.embedding_dim}"
            size = own_name if budget is None else Budget.parse(self.written[budget]).slug
            search_seconds, search_epochs = (0.0, 0) if budget is None else cell.search_cost(budget)
            ComparedPoint(
                source=_source_name(self.config),
                model=model,
                method=method,
                config=self._settings(embedding, method),
                seed=cell.config.seed,
                budget=None if budget is None else self.written[budget],
                num_parameters=trained.num_parameters,
                storage_bytes=trained.storage_bytes,
                bundle_bytes=trained.model_bytes + cell.encoder_bytes,
                validation_auc=trained.fit.validation.auc,
                validation_logloss=trained.fit.validation.logloss,
                test_auc=trained.test.auc,
                test_logloss=trained.test.logloss,
                floor_gain=trained.floor_gain,
                floor_gain_error=trained.floor_gain_error,
                still_improving=method != FLOOR and trained.fit.still_improving,
                test_auc_error=standard_error(trained.test),
                equal_bytes_of=self.config.rivalled if method == RIVAL else None,
                seconds=search_seconds + trained.fit.seconds,
                search_seconds=search_seconds,
                search_epochs=search_epochs,
                retrain_seconds=trained.fit.seconds,
                retrain_epochs=trained.fit.num_epochs,
                teacher_share=cell.plans[0].retraining,
                trials=[] if budget is None else Choice.load(self._choice(model, method, budget)).trials,
                versions=versions(),
                machine=machine(),
            ).save(self._point(model, method, size, cell.config.seed))

    def _settings(self, embedding: EmbeddingConfig, method: str) -> Mapping[str, object]:
        """A method's settings; for the rival also the `min_count` that its number of rows amounts to."""
        if method == FLOOR:
            return {}
        found = config_to_mapping(embedding)
        if isinstance(embedding, FrequentConfig):
            table = EncodedTable.open(self.out / "encoded")
            found["min_count"] = min_count_of(embedding, table.feature_counts, table.schema.field_sizes)
        return found

    def _cell(
        self,
        table: EncodedTable,
        model: str,
        method: str,
        embedding: EmbeddingConfig,
        seed: int,
        budgets: Sequence[Budget] = (),
    ) -> Cell:
        """The workflow of settings for budgets of one search, or for a training without a search."""
        config = RunConfig(
            data=self.config.data,
            model=model_config(model, self.config.data.source),
            embedding=embedding,
            effort="paper",  # methods are comparable if all start from the same initial weights
            search=self.config.search,
            training=self.config.training,
            teacher_share=self.config.teacher_share,
            seed=seed,
        )
        distilled = self.config.teacher_share and model != FLOOR
        return Cell.of(
            self._cells(model, method),
            config,
            table,
            partial(self._write, model, method),
            budgets=budgets,
            together=self.together[budgets[0]] if budgets else (),
            labels=self._soft_labels(table, config, model) if distilled else None,
            floor_predictions=None if model == FLOOR else self._floor_predictions(seed),
            progress=self.display,
            should_stop=self.time_is_up,
        )

    def _soft_labels(self, table: EncodedTable, config: RunConfig, model: str) -> Path:
        """The soft labels that all methods share under a model and seed, from a uniform table trained first."""
        uniform = replace(config, embedding=UniformConfig(embedding_dim=self.config.embedding_dim))
        teacher = Cell.of(
            self.out / "cells" / model / TEACHER,
            uniform,
            table,
            partial(self._write, model, TEACHER),
            progress=self.display,
            should_stop=self.time_is_up,
        )
        title = self.display.title
        self._set_title(model, TEACHER, config.seed, f"width {self.config.embedding_dim}")
        path = teacher.predict_labels()
        self.display.title = title
        return path

    def _cells(self, model: str, method: str) -> Path:
        return self.out / "cells" / model / method

    def _floor_predictions(self, seed: int) -> Path:
        return self._cells(FLOOR, FLOOR) / f"validation-seed{seed}.npy"

    def _choice(self, model: str, method: str, budget: Budget) -> Path:
        return self._cells(model, method) / f"choice-{budget.slug}.json"

    def _point(self, model: str, method: str, size: str, seed: int) -> Path:
        return self.points_folder / model / method / f"{size}-seed{seed}.json"


def _source_name(config: CompareConfig) -> str:
    return config.data.source if config.data.source != "files" else ",".join(config.data.paths)
