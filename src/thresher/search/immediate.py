"""The search algorithm `immediate`: the largest `budget_setting` of a method within each budget, without training."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from thresher._internal.settings import config_to_mapping
from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding
from thresher.embeddings.method_registry import build_embedding, method_name
from thresher.errors import BudgetError, ConfigError
from thresher.search.budget import Budget
from thresher.search.find_tickets import SearchTask, register_search
from thresher.search.ticket import Provenance, SettingsTicket
from thresher.training.checkpoint import isolated_rng


@register_search("immediate", units=("bundle",), shared=True)
class ImmediateSearch:
    def __init__(self, task: SearchTask) -> None:
        self.task = task
        self.tickets: list[SettingsTicket] = []
        table, config = _only_table(task)
        counts = None if task.data.feature_counts is None else task.data.feature_counts.tolist()
        for budget in task.budgets:
            fitted = largest_within(budget, config, table.field_sizes, counts)
            size = _build_for_size(fitted, table.field_sizes, counts)
            provenance = Provenance(
                method=method_name(fitted), seed=task.seed, step=0, epoch=0, config=config_to_mapping(fitted)
            )
            self.tickets.append(SettingsTicket(budget, fitted, size.num_parameters(), size.storage_bytes(), provenance))
        self.tickets.sort(key=lambda ticket: -ticket.num_parameters)

    def run(self) -> Sequence[SettingsTicket]:
        for ticket in self.tickets:
            self.task.save(ticket)
        return self.tickets


def largest_within(
    budget: Budget, config: EmbeddingConfig, field_sizes: Sequence[int], feature_counts: Sequence[int] | None = None
) -> EmbeddingConfig:
    """The config with the largest `budget_setting` within `budget`; a share refers to `N·D`, with `D` of `config`."""
    num_entries = sum(field_sizes) * config.embedding_dim
    values = config.budget_values(field_sizes)
    rest = 0 if budget.rest is None else budget.rest(np.ones(sum(field_sizes), np.bool_))

    def with_value(value: Any) -> EmbeddingConfig:
        return replace(config, **{config.budget_setting: value})

    def exceeds(value: int) -> bool:
        size = _build_for_size(with_value(value), field_sizes, feature_counts)
        if budget.in_bytes:  # rows are shared, so that every row has a key
            return size.storage_bytes() + rest > budget.amount
        return size.num_parameters() > budget.max_entries(num_entries)

    num_fitting = bisect_right(values, False, key=exceeds)
    if num_fitting == 0:
        smallest = _build_for_size(with_value(values[0]), field_sizes, feature_counts)
        raise BudgetError(
            f"budget {budget} is below the smallest size of {method_name(config)}, {config.budget_setting} = "
            f"{values[0]}: {smallest.num_parameters():,} parameters, {smallest.storage_bytes():,} bytes; raise it",
            budget=budget.text,
        )
    return with_value(values[num_fitting - 1])


def _build_for_size(
    config: EmbeddingConfig, field_sizes: Sequence[int], feature_counts: Sequence[int] | None
) -> FieldEmbedding:
    """An embedding with these settings, without memory if the method allows it."""
    with isolated_rng():
        try:
            with torch.device("meta"):
                return build_embedding(field_sizes, config, feature_counts=feature_counts)
        except (RuntimeError, NotImplementedError):  # a constructor that reads its own tensors needs real ones
            return build_embedding(field_sizes, config, feature_counts=feature_counts)


def _only_table(task: SearchTask) -> tuple[FieldEmbedding, EmbeddingConfig]:
    tables = [module for module in task.model.modules() if isinstance(module, FieldEmbedding)]
    config = getattr(tables[0], "config", None)
    if len(tables) > 1 or not isinstance(config, EmbeddingConfig):
        raise ConfigError(
            "a method without a search needs a model with exactly one embedding that has a `config`. Build the model "
            "with build_model(build_embedding(…), …)"
        )
    return tables[0], config
