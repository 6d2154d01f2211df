"""Budgets such as `1MB bundle`, which count everything a prediction loads, and how bundles store first-order weights.

The search leaves a share of such a budget to first-order weights. After retraining, as many of them as fit are stored,
those that change predictions most; the other features of a field share one weight.
"""

import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from thresher._internal.storage.files import private_folder
from thresher.compact.layouts import ValueType, compact_bytes
from thresher.compact.method_table import StoredEmbedding, to_table
from thresher.compact.table import CompactTable
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.table import EncodedTable
from thresher.embeddings.uniform import UniformConfig
from thresher.errors import BudgetError, ConfigError
from thresher.experiment.config import RunConfig
from thresher.experiment.retrain import TrainedModel, count_model_bytes
from thresher.experiment.run.run_models import new_model, searches_first_order
from thresher.models.base import CtrModel
from thresher.report.frontier import FrontierPoint
from thresher.search.budget import Budget
from thresher.serving.bundle import save_bundle, table_modules
from thresher.serving.first_order import FIRST_ORDER, rare_unknowns, share_first_order_
from thresher.serving.model_card import loaded_bytes
from thresher.serving.vocabularies import count_bytes, index_vocabularies
from thresher.training.epoch import evaluate

TABLE_SHARE = 0.4
"""Of the bytes that the search may fill: the part of tables and their keys; the rest is for first-order weights."""
FIRST_ORDER_TYPE: ValueType = "int8"
SLACK_BYTES = 512
"""Headers and paddings, which differ by some bytes between tables."""
MAX_TRIES = 12
FIRST_GUESS_BYTES = 10.0
"""Of a first-order weight with its key."""
LONGEST_NUMBER = -1.2345678901234567e-05


@dataclass(frozen=True)
class BundleSizes:
    """Counts the bytes of bundles of a run before they are written."""

    config: RunConfig
    table: EncodedTable

    def with_rest(self, budget: Budget) -> Budget:
        """A budget that counts a bundle, with the bytes of its other parts; other budgets are not changed."""
        if budget.unit != "bundle":
            return budget
        num_features, fixed = self.table.schema.num_features, self._fixed_bytes
        nothing, everything = np.zeros(num_features, np.bool_), np.ones(num_features, np.bool_)
        if not self.shares_first_order:
            return replace(budget, rest=lambda kept: fixed + self._key_bytes(kept))
        reserved = int((1 - TABLE_SHARE) * max(0, int(budget.amount) - fixed - self._key_bytes(nothing)))
        most = self._key_bytes(everything) + compact_bytes(everything[:, None], FIRST_ORDER_TYPE)
        return replace(budget, rest=lambda kept: fixed + min(self._key_bytes(kept) + reserved, most))

    def check(self) -> None:
        """Raise if the model has no first-order weights that `own_first_order` could count."""
        if self.config.own_first_order is not None and not self.shares_first_order:
            raise ConfigError(
                "own_first_order is given, but the model has no first-order weights of its own. Remove it."
            )

    @property
    def shares_first_order(self) -> bool:
        """Whether first-order weights are not searched, so that a bundle need not store all of them."""
        return not searches_first_order(self.config) and FIRST_ORDER in table_modules(self._untrained)

    @cached_property
    def encoder(self) -> RowEncoder:
        return RowEncoder.load(self.table.folder)

    @cached_property
    def _untrained(self) -> CtrModel:
        """The model with tables that keep nothing."""
        dim = self.config.embedding.embedding_dim
        model = new_model(self.config, self.table, UniformConfig(embedding_dim=dim)).to("cpu")
        for name, module in table_modules(model).items():
            empty = CompactTable.from_entries(to_table(module).shape, np.empty(0, np.int64), np.empty(0, np.float32))
            model.set_submodule(name, StoredEmbedding(self.table.schema.field_sizes, empty))
        return model

    @cached_property
    def _fixed_bytes(self) -> int:
        """Network, schema, settings and manifest."""
        bundle_bytes = self.written(self._untrained)
        return bundle_bytes - self._key_bytes(np.zeros(self.table.schema.num_features, np.bool_)) + SLACK_BYTES

    def written(self, model: CtrModel) -> int:
        """Bytes of the bundle of a model, with the longest metadata."""
        numbers = {each.name: LONGEST_NUMBER for each in fields(FrontierPoint)}
        metadata = FrontierPoint(**numbers).to_json()  # type: ignore[arg-type]  # only their length counts
        with private_folder("sizes") as scratch:
            parts = model, self.config.model, self.encoder
            return loaded_bytes(save_bundle(scratch / "bundle", *parts, metadata=metadata))

    def _key_bytes(self, kept_rows: NDArray[np.bool_]) -> int:
        """Bytes of the vocabularies if these rows `[N]` keep an entry or a weight."""
        schema = self.table.schema
        keys = kept_rows.copy()
        unknown = np.array(schema.field_offsets)
        rare = rare_unknowns(kept_rows, schema, self.table.feature_counts)
        for at in np.flatnonzero(kept_rows[unknown] & ~rare[unknown]):  # a dropped feature differs from the unknown one
            keys[unknown[at] : unknown[at] + schema.field_sizes[at]] = True
        return count_bytes(index_vocabularies(schema, self.encoder.vocabularies, keys))

    @cached_property
    def searched(self) -> list[str]:
        """The names of the tables that budgets count."""
        model = self._untrained
        is_embedding = [name for name in table_modules(model) if name != FIRST_ORDER]
        return [*is_embedding, FIRST_ORDER] if searches_first_order(self.config) else is_embedding

    def fit(self, trained: TrainedModel, budget: Budget, data: SplitBatches) -> TrainedModel:
        """The model as its bundle stores it, with its metrics: with all first-order weights, or with some of them."""
        assert isinstance(trained.model, CtrModel)
        number = self.config.own_first_order
        if not self.shares_first_order or (number is None and budget.unit != "bundle"):
            return trained
        if number is not None:
            model = share_first_order(trained.model.to("cpu"), self.table, number)
        else:
            model = self._largest(trained.model.to("cpu"), budget)
        return self._measured(trained, model, data)

    def _largest(self, model: CtrModel, budget: Budget) -> CtrModel:
        """The model with as many first-order weights as fit into a budget that counts the bundle."""
        limit, fits, best = int(budget.amount), 0, share_first_order(model, self.table, 0)
        size = self.written(best)
        if size > limit:
            message = f"the bundle of budget {budget} has {size:,} bytes without any first-order weight. Raise it"
            raise BudgetError(message, budget=budget.text)
        exceeds = self.table.schema.num_features + 1
        per_weight = FIRST_GUESS_BYTES
        for at in range(MAX_TRIES):
            guess = (fits + exceeds) // 2 if at % 3 == 2 else fits + int((limit - size) / per_weight)
            number = min(exceeds - 1, guess)
            if number <= fits:
                break
            shared = share_first_order(model, self.table, number)
            new_size = self.written(shared)
            per_weight = max(1.0, (new_size - size) / (number - fits))
            if new_size <= limit:
                fits, size, best = number, new_size, shared
            else:
                exceeds = number
        return best

    def _measured(self, trained: TrainedModel, model: CtrModel, data: SplitBatches) -> TrainedModel:
        tables = [to_table(module) for name, module in table_modules(model).items() if name in self.searched]
        validation = evaluate(model, data.validation, feature_counts=data.feature_counts)
        return replace(
            trained,
            model=model,
            num_parameters=sum(table.num_parameters for table in tables),
            storage_bytes=sum(table.storage_bytes for table in tables),
            model_bytes=count_model_bytes(model),
            fit=replace(trained.fit, validation=validation),
        )


def share_first_order(model: CtrModel, table: EncodedTable, num_own: int) -> CtrModel:
    """A copy of a trained model with `num_own` rounded first-order weights; see `share_first_order_`."""
    shared = copy.deepcopy(model)
    tables = {name: to_table(module) for name, module in table_modules(shared).items()}
    new = share_first_order_(shared, tables, table.schema, table.feature_counts, num_own)[FIRST_ORDER]
    assert isinstance(new, CompactTable)
    shared.set_submodule(FIRST_ORDER, StoredEmbedding(table.schema.field_sizes, new.to_value_type(FIRST_ORDER_TYPE)))
    return shared.eval().requires_grad_(False)
