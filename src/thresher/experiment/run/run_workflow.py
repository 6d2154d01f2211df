"""RunWorkflow: the workflow of `prune`, whose stages fill the folders of a run.

A stage is done once its result file exists (`point.json`, `tickets.json`, `distillation.json`). A resumed run skips
done stages and continues an unfinished one from its checkpoint.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from thresher._internal.processes import agreed, wait_for_files, writes_files
from thresher._internal.storage.files import read_json, write_json
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.table import EncodedTable
from thresher.embeddings.method_registry import method_name
from thresher.embeddings.uniform import UniformConfig
from thresher.experiment.dense_start import DenseStart
from thresher.experiment.floor import NO_EMBEDDING, Floor
from thresher.experiment.retrain import TrainedModel, evaluate_trained
from thresher.experiment.run.bundle_budget import BundleSizes
from thresher.experiment.run.cost import ExpectedCost, RunEstimate
from thresher.experiment.run.data_summary import data_summary
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_models import (
    ConfiguredModels,
    check_teacher_models,
    load_start,
    load_weights_,
    searches_first_order,
    shuffled_batches,
    with_first_order,
)
from thresher.experiment.stages import Stages
from thresher.experiment.workflow import Workflow, WorkflowResult
from thresher.models.base import CtrModel
from thresher.models.model_registry import FLOOR, has_embedding, model_config
from thresher.report.frontier import FrontierPoint
from thresher.search.ticket import Ticket
from thresher.search.ticket_files import load_ticket
from thresher.serving.bundle import save_bundle
from thresher.serving.model_card import loaded_bytes
from thresher.training.checkpoint import derive_seed
from thresher.training.devices import computing_in
from thresher.training.distillation import DistillationPlan, SoftLabels
from thresher.training.progress import Progress, Renamed, StageKind
from thresher.training.run_state import CHECKPOINT


@dataclass(kw_only=True)
class RunWorkflow(Workflow[FrontierPoint]):
    """The stages of a run, kept in its folder."""

    run_folder: Run
    table: EncodedTable
    sizes: BundleSizes

    @classmethod
    def of(
        cls,
        run: Run,
        table: EncodedTable,
        progress: Progress | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> "RunWorkflow":
        """The workflow of a run whose data is encoded."""
        config = run.config
        settings, data = config.stage_settings(), shuffled_batches(config, table)
        expected = ExpectedCost.of(
            settings,
            config.wanted_budgets(),
            num_entries=table.schema.num_features * config.embedding.embedding_dim,
            steps_per_epoch=len(data.train),
            num_plans=len(config.candidate_plans()),
            num_teachers=len(config.all_teachers()) if config.start_from is None else 0,
        )
        stages = Stages(
            models=ConfiguredModels(config, table),
            data=data,
            settings=settings,
            seed=config.seed,
            folder=run.folder,
            progress=progress if progress is None or expected is None else RunEstimate(progress, expected),
            should_stop=should_stop,
        )
        sizes = BundleSizes(config, table)
        budgets, plans = [sizes.with_rest(budget) for budget in config.wanted_budgets()], config.candidate_plans()
        return cls(stages=stages, budgets=budgets, plans=plans, run_folder=run, table=table, sizes=sizes)

    def run(self) -> WorkflowResult[FrontierPoint]:
        """The whole workflow; large tables are files if the settings say so."""
        with self.run_folder.large_tables(), computing_in(self.run_folder.config.precision):
            return super().run()

    def search(self, plan: DistillationPlan) -> Sequence[Ticket]:
        """The search of a plan alone, after the teachers it needs."""
        with self.run_folder.large_tables(), computing_in(self.run_folder.config.precision):
            self.check_budgets()
            self.train_floor()
            if plan.search or self.stages.settings.start == "dense":
                self.make_soft_labels(self.train_dense())
            return self.find_tickets(plan)

    def check_budgets(self) -> None:
        """Also checks the teachers' models; sizes of the `max_auc_drop` ladder that cannot be met are left out."""
        self.sizes.check()
        for plan in self.plans:
            found = self.run_folder.ticket_folder(plan) / "tickets.json"
            if agreed(found.exists()):  # an earlier search has checked them
                self.budgets = [budget for budget in self.budgets if budget.slug in read_json(found)["tickets"]]
                return
        check_teacher_models(self.run_folder.config, self.table)
        unmet = self.stages.unmet_budgets(self.budgets)
        reachable = [budget for budget in self.budgets if budget not in unmet]
        if unmet and (self.run_folder.config.max_auc_drop is None or not reachable):
            raise next(iter(unmet.values()))
        self.budgets = reachable

    def train_floor(self) -> FrontierPoint | None:
        """Logistic regression on the same fields; None if the model has no embedding itself."""
        run, done = self.run_folder, self.run_folder.floor / "point.json"
        if not has_embedding(run.config.model):
            return None
        if agreed(not (done.exists() and run.floor_predictions.exists())):
            floor_table = UniformConfig(embedding_dim=1)
            own = replace(run.config, model=model_config(FLOOR), embedding=floor_table, start_from=None)
            models = ConfiguredModels(own, self.table)
            trained = replace(self.stages, models=models).train_floor(models.dense())
            floor = Floor.of(trained.model, self.stages.data.validation)
            if writes_files():
                floor.save(run.floor_predictions)
                point = trained.point(label=NO_EMBEDDING, budget=None, seed=run.config.seed)
                _finish(run.floor, replace(point, num_parameters=0, storage_bytes=0, bundle_bytes=self._size(trained)))
            wait_for_files()
        return FrontierPoint.from_json(read_json(done))

    def floor(self) -> Floor | None:
        path = self.run_folder.floor_predictions
        return Floor.load(path) if path.exists() else None

    def _size(self, trained: TrainedModel) -> int:
        """Bytes of a bundle of this model, which is not written."""
        return trained.model_bytes + self.table.encoder_bytes

    def train_dense(self) -> FrontierPoint:
        """The model with a uniform table of the same width: the start of the search, and the first teacher."""
        run, config = self.run_folder, self.run_folder.config
        done, labels = run.dense / "point.json", run.teacher_labels(1)
        needs_labels = config.largest_share > 0 and not (labels.exists() or run.soft_labels.exists())
        needs_weights = self.stages.settings.start == "dense" and not run.dense_weights.exists()
        if agreed(needs_labels or needs_weights or not done.exists()):
            start = None if config.start_from is None else load_start(Path(config.start_from), self.table)
            if start is None:
                trained = self._train_teacher(self.stages, run.dense, labels, stage="dense", kind="dense", test=True)
            else:
                trained = self._trained_already(start, labels)
            trained_over = self.over_floor(with_first_order(trained) if searches_first_order(config) else trained)
            if writes_files():
                if needs_weights:
                    num_epochs = trained.fit.num_epochs if start is None else start.num_epochs
                    DenseStart.of(trained.model, num_epochs).save(run.dense_weights)
                point = trained_over.point(label="dense", budget=None, seed=config.seed)
                _finish(run.dense, replace(point, bundle_bytes=self._size(trained_over)))
            wait_for_files()
        return FrontierPoint.from_json(read_json(done))

    def _trained_already(self, start: DenseStart, labels: Path) -> TrainedModel:
        """The model of `start_from`, evaluated, and its predictions if they are needed."""
        model, config = self.stages.models.dense(), self.run_folder.config
        load_weights_(model, start, Path(str(config.start_from)))
        trained = evaluate_trained(model, self.stages.data)
        if config.largest_share:
            rows, progress = self.stages.data.train, self.stages.progress
            predicted = SoftLabels.from_teacher(
                model, rows, config.largest_share, stage="dense predicts", progress=Renamed(progress, kind="dense")
            )
            if writes_files():
                predicted.save(labels)
            wait_for_files()
        return trained

    def make_soft_labels(self, dense: FrontierPoint | None = None) -> None:
        """Train the other teachers, each with its own seed and never tested; average the predictions of all."""
        run, config = self.run_folder, self.run_folder.config
        if not config.largest_share or agreed(run.soft_labels.exists()):
            return
        teachers = dict(enumerate(config.all_teachers(), 1))
        for number in range(2, len(teachers) + 1):
            labels = run.teacher_labels(number)
            if agreed(not labels.exists()):
                own = replace(config, model=teachers[number], seed=derive_seed(config.seed, "teacher", number))
                models, data = ConfiguredModels(own, self.table), shuffled_batches(own, self.table)
                stages = replace(self.stages, models=models, data=data, seed=own.seed)
                stage = f"teacher {number} of {len(teachers)}"
                self._train_teacher(stages, labels.parent, labels, stage=stage, kind="teacher", test=False)
            if writes_files():
                (labels.parent / CHECKPOINT).unlink(missing_ok=True)
        parts = [SoftLabels.load(run.teacher_labels(number), config.largest_share) for number in teachers]
        if writes_files():
            SoftLabels.mean(parts).save(run.soft_labels)
        wait_for_files()

    def _train_teacher(
        self, stages: Stages, folder: Path, labels: Path, *, stage: str, kind: StageKind, test: bool
    ) -> TrainedModel:
        name, share = folder.relative_to(self.run_folder.folder).as_posix(), self.run_folder.config.largest_share
        trained = stages.train(stages.models.dense(), name, stage=stage, kind=kind, test=test)
        if share:
            rows, progress = stages.data.train, Renamed(stages.progress, kind=kind)
            predicted = SoftLabels.from_teacher(
                trained.model, rows, share, stage=f"{stage} predicts", progress=progress
            )
            if writes_files():
                predicted.save(labels)
            wait_for_files()
        return trained

    def dense_start(self) -> DenseStart | None:
        return DenseStart.load(self.run_folder.dense_weights) if self.stages.settings.start == "dense" else None

    def soft_labels(self, share: float) -> SoftLabels | None:
        return self.run_folder.load_soft_labels(share)

    def choose_distillation(self) -> DistillationPlan:
        chosen = self.run_folder.distillation()
        if chosen is None:
            choice = self.try_plans() if self.stages.settings.start == "dense" else self.compare_plans()
            chosen = choice.best
            shares = {"share": chosen.retraining, "search_share": chosen.search}
            others = {"failed": choice.failed, "decided_by": choice.size}
            known = {name: value for name, value in others.items() if value is not None}
            if writes_files():
                write_json(self.run_folder.choice, {**shares, "validation_auc": choice.validation_aucs, **known})
                for checkpoint in self.run_folder.trials.glob(f"*/{CHECKPOINT}"):
                    checkpoint.unlink()
            wait_for_files()
        return chosen

    def find_tickets(self, plan: DistillationPlan) -> Sequence[Ticket]:
        folder = self.run_folder.ticket_folder(plan)
        done = folder / "tickets.json"
        if agreed(done.exists()):
            return [load_ticket(folder / slug) for slug in read_json(done)["tickets"]]
        name = folder.relative_to(self.run_folder.folder).as_posix()
        labels = self.soft_labels(plan.search)
        tickets = self.stages.find_tickets(self.budgets, name, start=self.dense_start(), soft_labels=labels)
        if writes_files():
            write_json(done, {"tickets": [ticket.budget.slug for ticket in tickets]})
            (folder / CHECKPOINT).unlink(missing_ok=True)
        wait_for_files()
        return tickets

    def retrain(self, ticket: Ticket, plan: DistillationPlan) -> TrainedModel:
        folder = self.run_folder.retrained(ticket.budget) / str(plan)
        name = folder.relative_to(self.run_folder.folder).as_posix()
        labels = self.soft_labels(plan.retraining)
        return self.stages.retrain(ticket, name, start=self.dense_start(), soft_labels=labels)

    def prune_to(self, ticket: Ticket, plan: DistillationPlan) -> FrontierPoint:
        done = self.run_folder.retrained(ticket.budget) / "point.json"
        return FrontierPoint.from_json(read_json(done)) if agreed(done.exists()) else super().prune_to(ticket, plan)

    def as_stored(self, ticket: Ticket, trained: TrainedModel) -> TrainedModel:
        """With the first-order weights that its bundle stores."""
        return self.sizes.fit(trained, ticket.budget, self.stages.data)

    def keep(self, ticket: Ticket, trained: TrainedModel) -> FrontierPoint:
        """Write the model as a bundle, then its point on the frontier."""
        run, config = self.run_folder, self.run_folder.config
        assert isinstance(trained.model, CtrModel)
        point = trained.point(label=method_name(config.embedding), budget=str(ticket.budget), seed=config.seed)
        if writes_files():
            encoder, model, folder = RowEncoder.load(run.encoded), trained.model.to("cpu"), run.bundle(ticket.budget)
            metadata = {**point.to_json(), "data": data_summary(config.data, self.table)}
            bundle = save_bundle(folder, model, config.model, encoder, metadata=metadata, searched=self.sizes.searched)
            _finish(run.retrained(ticket.budget), replace(point, bundle_bytes=loaded_bytes(bundle)))
        wait_for_files()
        return FrontierPoint.from_json(read_json(run.retrained(ticket.budget) / "point.json"))


def _finish(folder: Path, point: FrontierPoint) -> None:
    """Mark a stage as done; its checkpoints are no longer needed."""
    write_json(folder / "point.json", point.to_json())
    for checkpoint in folder.rglob(CHECKPOINT):
        checkpoint.unlink()
