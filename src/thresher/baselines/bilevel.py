"""Bilevel search: weights learn on training batches, choices of sizes on validation batches, in alternating steps.

Serves DartsEmb and AutoDim, which end in sizes, and DNIS, which ends in masks. The gradient of the choices is taken at
the present weights (first order); it costs about one more training step per step, which the history shows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from thresher._internal.mapped_tensors import copy_into_, copy_of, tensor_state
from thresher.baselines.size_choice import SizeTickets
from thresher.embeddings.base import FieldEmbedding
from thresher.errors import AttachError, ConfigError
from thresher.search.controller import TableSearch
from thresher.search.find_tickets import SearchTask, register_search
from thresher.search.ticket import Ticket
from thresher.training.checkpoint import Checkpoint, load_optimizer_, packed_optimizer
from thresher.training.loop import lone_row, mean_loss
from thresher.training.metrics import Metrics
from thresher.training.optimizers import build_optimizer

if TYPE_CHECKING:
    from thresher.data.batches.batches import Batch, BatchSource


class EndlessBatches:
    """Batches of a source, epoch after epoch; it can resume at any position."""

    def __init__(self, source: "BatchSource") -> None:
        self.source = source
        self.go_to(1, 0)

    def go_to(self, epoch: int, place: int) -> None:
        self.epoch, self.place = epoch, place
        self._iterator: Iterator[Batch] = iter(self.source.epoch(epoch, place))

    def position(self) -> tuple[int, int]:
        return self.epoch, self.place

    def next(self) -> "Batch":
        if self.place >= len(self.source):
            self.go_to(self.epoch + 1, 0)
        self.place += 1
        return next(self._iterator)


class MaskTickets:
    """Cuts mask tickets by the tables' own scores."""

    def __init__(self, task: SearchTask, tables: Mapping[str, Any]) -> None:
        self.search = TableSearch(task, tables)

    def cut(self, initial_state: Mapping[str, Tensor], *, step: int, epoch: int) -> Sequence[Ticket]:
        cutter = self.search.cutter
        cutter.initial_state = dict(initial_state)
        cutter.cut_due(self.search.scores(), at_least=0, step=step, epoch=epoch)
        return cutter.tickets


@register_search("bilevel")
class BilevelSearch:
    """Learns the choices until validation stops improving, restores the best epoch, and cuts every budget there.

    A `TrainingController`: after each training step, `optimizer` makes a step of the choices.
    """

    def __init__(self, task: SearchTask) -> None:
        self.task, self.model, self.config = task, task.model, task.config
        self.tables = _tables_with_choices(task.model)
        kinds = {table.derives for table in self.tables.values()}
        if len(kinds) > 1:
            raise ConfigError("some of the model's tables end in sizes, others in masks. Use one method for all")
        self.tickets = SizeTickets(task, self.tables) if kinds == {"sizes"} else MaskTickets(task, self.tables)
        self.weights_optimizer, self.optimizer = _two_optimizers(task)
        self.batches = EndlessBatches(task.data.choices or task.data.validation)
        self.stopping = task.config.stopping()
        self.step = self.epoch = 0
        self.initial_state = {name: copy_of(value) for name, value in tensor_state(task.model).items()}

    def run(self) -> Sequence[Ticket]:
        settings = {**asdict(self.config), **{name: asdict(table.config) for name, table in self.tables.items()}}
        self.task.train(
            self.weights_optimizer, self, stage="bilevel search", settings=settings, max_epochs=self.config.max_epochs
        )
        self.stopping.restore_best_(self.model)
        return self.tickets.cut(self.initial_state, step=self.step, epoch=self.epoch)

    @property
    def finished(self) -> bool:
        return self.stopping.should_stop or self.epoch >= self.config.max_epochs

    def after_step(self) -> None:
        self.step += 1
        device = next(self.model.parameters()).device
        batch = self.batches.next().to(device)
        parameters = self.optimizer.param_groups[0]["params"]
        with lone_row(self.model, batch):
            loss, _ = mean_loss(self.model(*batch.inputs), batch)
            gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()

    def after_epoch(self, epoch: int, metrics: Metrics) -> Mapping[str, Any]:
        self.epoch = epoch
        self.stopping.update(epoch, metrics, self.model)
        tables = [module for module in self.model.modules() if isinstance(module, FieldEmbedding)]
        return {"step": self.step, "num_kept": sum(table.num_parameters() for table in tables)}

    def progress(self) -> Mapping[str, Any]:
        return {"metric": self.stopping.metric, "best": self.stopping.best}

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "epoch": self.epoch,
            "stopping": self.stopping.state(),
            "batches": self.batches.position(),
            "optimizer": packed_optimizer(self.optimizer).metadata,
        }

    def tensors(self) -> dict[str, Tensor]:
        stored = Checkpoint()
        stored.add("initial", self.initial_state)
        stored.add("best", self.stopping.tensors())
        stored.add("choices", packed_optimizer(self.optimizer).tensors)
        return stored.tensors

    def load(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        stored = Checkpoint(tensors=dict(tensors))
        self.step, self.epoch = state["step"], state["epoch"]
        copy_into_(self.initial_state, stored.under("initial"))
        self.stopping.load(state["stopping"], stored.under("best"))
        self.batches.go_to(*state["batches"])
        load_optimizer_(self.optimizer, state["optimizer"], stored.under("choices"))


def _two_optimizers(task: SearchTask) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    """One optimizer for the weights, stepped on training batches, and one for the choices, on validation batches."""
    weights = build_optimizer(task.model, task.config.optimizer)
    choices = [group for group in weights.param_groups if group["name"] == "choices"]
    weights.param_groups = [group for group in weights.param_groups if group["name"] != "choices"]
    return weights, torch.optim.Adam(choices[0]["params"], lr=choices[0]["lr"], weight_decay=choices[0]["weight_decay"])


def _tables_with_choices(model: nn.Module) -> dict[str, Any]:
    tables = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, FieldEmbedding) and "choices" in module.parameter_groups()
    }
    if not tables:
        raise AttachError(
            "the model has no table that learns choices. Build it with DartsEmbConfig, AutoDimConfig or DnisConfig"
        )
    return tables
