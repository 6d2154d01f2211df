"""Bilevel search: weights learn on training batches, choices of sizes on validation batches, in alternating steps.

Serves DartsEmb and AutoDim, which end in sizes, and DNIS, which ends in masks. The gradient of the choices is taken at
the present weights (first order); it costs about one more training step per step, which the history shows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher._internal.mapped_tensors import copy_into_, copy_of, tensor_state
from thresher.baselines.size_choice import SizeTickets
from thresher.embeddings.base import BYTES_PER_VALUE, EmbeddingConfig, FieldEmbedding, Role, new_table
from thresher.embeddings.feature_groups import popularity_blocks
from thresher.embeddings.method_registry import register_embedding
from thresher.errors import AttachError, ConfigError
from thresher.search.controller import TableSearch
from thresher.search.find_tickets import SearchTask, register_search
from thresher.search.ticket import Ticket
from thresher.training.checkpoint import Checkpoint, pack_optimizer, unpack_optimizer_
from thresher.training.epoch import lone_row, mean_loss
from thresher.training.fit import StoppingController
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

    def next(self) -> "Batch":
        if self.place >= len(self.source):
            self.go_to(self.epoch + 1, 0)
        self.place += 1
        return next(self._iterator)


class MaskTickets(TableSearch):
    """Cuts mask tickets by the tables' own scores."""

    def cut_all(self, initial_state: Mapping[str, Tensor], *, step: int, epoch: int) -> Sequence[Ticket]:
        self.initial_state, self.current_step, self.epoch = dict(initial_state), step, epoch
        self.cut_due(self.scores(), at_least=0)
        return self.tickets_so_far


@register_search("bilevel")
class BilevelSearch(StoppingController):
    """Learns the choices until validation stops improving, restores the best epoch, and cuts every budget there."""

    def __init__(self, task: SearchTask) -> None:
        super().__init__(task.model, task.config.stopping(), task.config.max_epochs)
        self.task, self.step = task, 0
        self.tables = _tables_with_choices(task.model)
        kinds = {table.derives for table in self.tables.values()}
        if len(kinds) > 1:
            raise ConfigError("some of the model's tables end in sizes, others in masks. Use one method for all")
        self.tickets = SizeTickets(task, self.tables) if kinds == {"sizes"} else MaskTickets(task, self.tables)
        self.weights_optimizer = build_optimizer(task.model, task.config.optimizer)
        groups = {group["name"]: group for group in self.weights_optimizer.param_groups}
        choices = groups.pop("choices")
        self.weights_optimizer.param_groups = list(groups.values())
        self.optimizer = torch.optim.Adam(choices["params"], lr=choices["lr"], weight_decay=choices["weight_decay"])
        self.batches = EndlessBatches(task.data.choices or task.data.validation)
        self.initial_state = {name: copy_of(value) for name, value in tensor_state(task.model).items()}

    def run(self) -> Sequence[Ticket]:
        settings = {**asdict(self.task.config), **{name: asdict(table.config) for name, table in self.tables.items()}}
        self.task.train(
            self.weights_optimizer, self, stage="bilevel search", settings=settings, max_epochs=self.max_epochs
        )
        self.stopping.restore_best_(self.model)
        return self.tickets.cut_all(self.initial_state, step=self.step, epoch=self.epoch)

    def after_step(self) -> None:
        self.step += 1
        batch = self.batches.next().to(next(self.model.parameters()).device)
        parameters = self.optimizer.param_groups[0]["params"]
        with lone_row(self.model, batch):
            loss, _ = mean_loss(self.model(*batch.inputs), batch)
            gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()

    def after_epoch(self, epoch: int, metrics: Metrics) -> Mapping[str, Any]:
        super().after_epoch(epoch, metrics)
        tables = [module for module in self.model.modules() if isinstance(module, FieldEmbedding)]
        return {"step": self.step, "num_kept": sum(table.num_parameters() for table in tables)}

    def state(self) -> Checkpoint:
        state = super().state()
        state.metadata |= {"step": self.step, "batches": (self.batches.epoch, self.batches.place)}
        state.add("initial", Checkpoint(self.initial_state))
        state.add("optimizer", pack_optimizer(self.optimizer))
        return state

    def load(self, state: Checkpoint) -> None:
        super().load(state)
        self.step = state.metadata["step"]
        self.batches.go_to(*state.metadata["batches"])
        copy_into_(self.initial_state, state.part("initial").tensors)
        unpack_optimizer_(state.part("optimizer"), self.optimizer)


def _tables_with_choices(model: nn.Module) -> dict[str, Any]:
    tables = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, FieldEmbedding) and "choices" in module.parameter_groups()
    }
    if not tables:
        raise AttachError("no table learns choices. Build the model with DartsEmbConfig, AutoDimConfig or DnisConfig")
    return tables


@dataclass(frozen=True, kw_only=True)
class DnisConfig(EmbeddingConfig):
    """Settings of DNIS."""

    num_blocks: int = 10
    """Popularity blocks over all features, of about equal total count; each has its own mask."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_blocks < 1:
            raise ConfigError(f"num_blocks is {self.num_blocks}; it must be at least 1")

    @classmethod
    def grid(cls) -> Sequence[Self]:
        return [cls(embedding_dim=width) for width in (128, 64, 32, 16)]


@register_embedding("dnis", DnisConfig, status="experimental")
class DnisEmbedding(FieldEmbedding):
    """DNIS: a continuous mask over dimensions for each block of features of similar popularity.

        v_i = soft_mask[block of i] ⊙ V[i]

    The entries of largest |soft_mask ⊙ V| are kept. Cheng, Shen, Huang, "Differentiable neural input search for
    recommender systems" (2020). The authors normalise the mask's gradient per block, keep entries above a threshold and
    do not retrain; here Adam scales it per entry, the budget decides the number, and the ticket is retrained.
    """

    search_algorithm = "bilevel"
    derives: ClassVar[str] = "masks"
    block_of_feature: Tensor
    seen: Tensor

    def __init__(
        self, field_sizes: Sequence[int], config: DnisConfig, *, feature_counts: Sequence[int] | None = None
    ) -> None:
        super().__init__(field_sizes, config.embedding_dim)
        self.config = config
        if feature_counts is None:
            raise ConfigError("DNIS masks features by popularity and needs feature_counts")
        blocks = popularity_blocks(feature_counts, config.num_blocks)
        self.register_buffer("block_of_feature", torch.from_numpy(blocks), persistent=False)
        # from the counts, because the search looks up validation rows in training mode too
        self.register_buffer("seen", torch.from_numpy(np.asarray(feature_counts) > 0), persistent=False)
        self.weight = new_table(self.num_features, self.embedding_dim)
        self.soft_mask = nn.Parameter(torch.ones(int(blocks.max()) + 1, self.embedding_dim))  # [blocks, D]

    def forward(self, ids: Tensor) -> Tensor:
        distinct, places = torch.unique(ids, return_inverse=True)  # [U], [...]
        masks = functional.embedding(self.block_of_feature[distinct.long()], self.soft_mask)
        return functional.embedding(places, masks * functional.embedding(distinct, self.weight))  # [..., D]

    @torch.no_grad()
    def scores(self) -> Tensor:
        """`|soft_mask ⊙ V|` `[N, D]`; −∞ for rows never seen in training."""
        values = self.soft_mask[self.block_of_feature] * self.weight
        return values.abs().masked_fill(~self.seen[:, None], -torch.inf)

    def num_parameters(self) -> int:
        """The search holds the whole table; a ticket is counted after retraining."""
        return self.weight.numel()

    def storage_bytes(self) -> int:
        """Table, mask, and one byte per feature for its block."""
        return (self.weight.numel() + self.soft_mask.numel()) * BYTES_PER_VALUE + self.num_features

    def parameter_groups(self) -> Mapping[Role, Sequence[nn.Parameter]]:
        return {"embeddings": [self.weight], "choices": [self.soft_mask]}
