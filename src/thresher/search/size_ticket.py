"""SizeTicket: a width for each group of features, and the whole model's weights to start from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from thresher.embeddings.base import EmbeddingConfig, FieldEmbedding
from thresher.embeddings.feature_groups import FeatureRuns
from thresher.embeddings.mixed_dimension import MixedDimensionEmbedding
from thresher.errors import ThresherError
from thresher.search.budget import Budget
from thresher.search.ticket import Provenance, Rewind, check_rewind, ticket_text


@dataclass(frozen=True)
class TableSizes:
    """What becomes of one table.

    Attributes:
        embedding_dim: the width all groups are projected to.
        sizes: the width inside of each group.
        runs: which group a feature is in.
    """

    embedding_dim: int
    sizes: tuple[int, ...]
    runs: FeatureRuns = field(repr=False)

    def build(self, field_sizes: Sequence[int]) -> MixedDimensionEmbedding:
        return MixedDimensionEmbedding(field_sizes, self.embedding_dim, self.runs, self.sizes, share_projections=True)


@dataclass(frozen=True)
class SizeTicket:
    """The widths a search chose for one budget.

    Attributes:
        tables: table name → its widths.
        initial: the whole model's `state_dict` before the search, its tables already of these widths.
        final: the same at the end of the search.
        num_parameters: tables and projections.
    """

    budget: Budget
    tables: Mapping[str, TableSizes]
    initial: Mapping[str, Tensor]
    final: Mapping[str, Tensor]
    num_parameters: int
    provenance: Provenance

    def __repr__(self) -> str:
        tables = {
            name: ", ".join(f"{table.sizes.count(size)} groups of width {size}" for size in sorted(set(table.sizes)))
            for name, table in self.tables.items()
        }
        return ticket_text(self, tables)

    def embedding_config(self, searched: EmbeddingConfig) -> EmbeddingConfig:
        return searched

    def sizes(self) -> Mapping[str, Tensor]:
        """The width of each feature, `[N]` per table."""
        found = {name: table.build([sum(table.runs.group_sizes)]) for name, table in self.tables.items()}
        return {name: table.size_of_feature() for name, table in found.items()}

    def apply_(self, model: nn.Module, *, rewind: Rewind = "initial") -> Sequence[str]:
        """Put tables of these widths into `model`, and rewind the whole of it; `random` leaves all weights fresh."""
        check_rewind(rewind)
        for name, sizes in self.tables.items():
            table = dict(model.named_modules()).get(name)
            if not isinstance(table, FieldEmbedding) or table.num_features != sum(sizes.runs.group_sizes):
                raise ThresherError(
                    f"the ticket is for a table {name!r} of {sum(sizes.runs.group_sizes)} features, which this model "
                    "does not have; build the model as the search did"
                )
            model.set_submodule(name, sizes.build(table.field_sizes))
        if rewind != "random":
            try:
                model.load_state_dict(dict(self.initial if rewind == "initial" else self.final))
            except RuntimeError as error:
                raise ThresherError(
                    f"the ticket is for another model ({error}); build it with the settings the search had"
                ) from None
        return list(self.tables)
