"""Bilevel search: weights learn on training batches, choices of sizes on validation batches, step by step in turn.

Serves DartsEmb and AutoDim, which end in sizes, and DNIS, which ends in masks. The gradient of the choices is that of
the present weights (first order); it costs about one more training step per step, and the history shows it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from thresher._internal.mapped_tensors import copy_into_, copy_of
from thresher._internal.tensor_state import tensor_state
from thresher.baselines.endless_batches import EndlessBatches
from thresher.baselines.size_choice import SizeDeriver
from thresher.embeddings.base import FieldEmbedding
from thresher.embeddings.method_registry import method_name
from thresher.errors import AttachError, ConfigError
from thresher.search.mask_judge import cutter_for
from thresher.search.task import SearchTask, register_search
from thresher.search.ticket import Ticket
from thresher.training.checkpoint import Checkpoint, load_optimizer_, packed_optimizer
from thresher.training.epochs import run_epochs
from thresher.training.loop import lone_row, mean_loss
from thresher.training.metrics import Metrics
from thresher.training.optimizers import build_optimizer

STAGE = "bilevel search"


@register_search("bilevel")
def search_choices(task: SearchTask) -> Sequence[Ticket]:
    """Learn the choices until validation stops improving, go back to the best epoch, and cut every budget there."""
    tables = _choosing_tables(task.model)
    deriver = _deriver(task, tables)  # before anything long, so that a budget no choice can meet is told at once
    weights, choices = _two_optimizers(task)
    judge = BilevelJudge(task, choices)
    run_epochs(
        task.model,
        weights,
        judge,
        task.data,
        stage=STAGE,
        settings={**asdict(task.config), **{name: asdict(table.config) for name, table in tables.items()}},
        seed=task.seed,
        max_epochs=task.config.max_epochs,
        folder=task.folder,
        progress=task.progress,
        should_stop=task.should_stop,
    )
    judge.stopping.restore_best_(task.model)
    return deriver.derive(judge.initial_state, step=judge.step, epoch=judge.epoch)


class BilevelJudge:
    """After each training step takes a step of the choices; ends when validation no longer improves."""

    def __init__(self, task: SearchTask, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.config, self.optimizer = task.model, task.config, optimizer
        self.batches = EndlessBatches(task.data.choices or task.data.validation)
        self.stopping = task.config.stopping()
        self.step = self.epoch = 0
        self.initial_state = {name: copy_of(value) for name, value in tensor_state(task.model).items()}

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

    def facts(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "epoch": self.epoch,
            "stopping": self.stopping.facts(),
            "batches": self.batches.position(),
            "optimizer": packed_optimizer(self.optimizer).facts,
        }

    def tensors(self) -> dict[str, Tensor]:
        held = {f"initial/{name}": value for name, value in self.initial_state.items()}
        held |= {f"best/{name}": value for name, value in self.stopping.tensors().items()}
        return held | {f"choices/{name}": value for name, value in packed_optimizer(self.optimizer).tensors.items()}

    def load(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        held = Checkpoint(tensors=dict(tensors))
        self.step, self.epoch = facts["step"], facts["epoch"]
        copy_into_(self.initial_state, held.under("initial"))
        self.stopping.load(facts["stopping"], held.under("best"))
        self.batches.go_to(*facts["batches"])
        load_optimizer_(self.optimizer, facts["optimizer"], held.under("choices"))


def _two_optimizers(task: SearchTask) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    """One for the weights, which training steps use, and one for the choices, which only validation batches move."""
    weights = build_optimizer(task.model, task.config.optimizer)
    choices = [group for group in weights.param_groups if group["name"] == "choices"]
    weights.param_groups = [group for group in weights.param_groups if group["name"] != "choices"]
    return weights, torch.optim.Adam(choices[0]["params"], lr=choices[0]["lr"], weight_decay=choices[0]["weight_decay"])


class Deriver(Protocol):
    """Makes tickets of the choices a search has learned."""

    def derive(self, initial_state: Mapping[str, Tensor], *, step: int, epoch: int) -> Sequence[Ticket]: ...


class MaskDeriver:
    """Cuts mask tickets by the tables' own scores."""

    def __init__(self, task: SearchTask, tables: Mapping[str, Any]) -> None:
        self.tables = tables
        self.cutter = cutter_for(task, tables, method=method_name(next(iter(tables.values())).config))

    def derive(self, initial_state: Mapping[str, Tensor], *, step: int, epoch: int) -> Sequence[Ticket]:
        self.cutter.initial_state = dict(initial_state)
        scores = {name: table.scores() for name, table in self.tables.items()}
        self.cutter.cut_due(scores, at_least=0, step=step, epoch=epoch)
        return self.cutter.tickets


def _deriver(task: SearchTask, tables: Mapping[str, Any]) -> Deriver:
    kinds = {table.derives for table in tables.values()}
    if len(kinds) > 1:
        raise ConfigError("some of the model's tables end in sizes, others in masks; give all the same method")
    return SizeDeriver(task, tables) if kinds == {"sizes"} else MaskDeriver(task, tables)


def _choosing_tables(model: nn.Module) -> dict[str, Any]:
    tables = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, FieldEmbedding) and "choices" in module.parameter_groups()
    }
    if not tables:
        raise AttachError("the model has no table that learns choices; build it with DartsEmbConfig or its kin")
    return tables
