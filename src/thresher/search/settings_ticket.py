"""SettingsTicket: the settings under which a method that needs no search meets a budget.

Nothing was trained to find it, so there is nothing to rewind: a fresh model built with these settings is its start.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding
from thresher.errors import ConfigError, ThresherError
from thresher.search.budget import Budget
from thresher.search.ticket import Provenance, Rewind, check_rewind


@dataclass(frozen=True)
class SettingsTicket:
    """The largest settings of a method that fit a budget.

    Attributes:
        embedding: to build the model with.
        num_parameters: what an embedding of these settings counts, as its paper counts.
        storage_bytes: what its lookups need.
    """

    budget: Budget
    embedding: EmbeddingConfig
    num_parameters: int
    storage_bytes: int
    provenance: Provenance

    def __repr__(self) -> str:
        about = f"budget={str(self.budget)!r}, method={self.provenance.method!r}"
        return f"SettingsTicket({about}, num_parameters={self.num_parameters:,}, embedding={self.embedding})"

    def embedding_config(self, searched: EmbeddingConfig) -> EmbeddingConfig:
        return self.embedding

    def apply_(self, model: nn.Module, *, rewind: Rewind = "initial") -> Sequence[str]:
        """Check that `model` was built with these settings; its fresh weights are where training starts."""
        check_rewind(rewind)
        if rewind == "final":
            raise ConfigError(
                f'rewind = "final" goes on from a search, and method {self.provenance.method!r} has none; '
                'use rewind = "initial"'
            )
        tables = {name: module for name, module in model.named_modules() if isinstance(module, FieldEmbedding)}
        if self.embedding not in [getattr(table, "config", None) for table in tables.values()]:
            raise ThresherError(
                f"the ticket is for a model whose embedding has the settings {self.embedding}; "
                "build the model with ticket.embedding_config(…)"
            )
        return list(tables)
