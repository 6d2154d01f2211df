"""Quantisation-aware training of what survived: values that know they will be stored in 8 or 4 bits.

The forward pass rounds the values to their codes, the backward pass lets gradients through (straight-through), and
each block's scale is learned with them: learned step size quantisation (Esser et al., ICLR 2020). Meant to go on from
a trained `CompactEmbedding` for an epoch or a few; the table it gives holds exactly what it was trained with.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher.compact.embedding import CompactEmbedding
from thresher.compact.table import CompactTable
from thresher.compact.value_types import MAX_CODE, SCALE_BLOCK, Quantised, ValueType, is_quantised, quantise
from thresher.errors import ConfigError
from thresher.kernels.rows import compact_lookup


class QuantisedEmbedding(CompactEmbedding):
    """A `CompactEmbedding` whose vectors are those of its stored form.

    A block's scale is `first_scales · exp(scale_shift)`: positive whatever the optimizer does, and weight decay
    pulls it to where it began instead of to zero.
    """

    first_scales: Tensor  # float32 [blocks]

    def __init__(self, embedding: CompactEmbedding, value_type: ValueType) -> None:
        if not is_quantised(value_type):
            raise ConfigError(f"value_type is {value_type!r}; quantisation-aware training is for int8 and int4")
        super().__init__(embedding.field_sizes, embedding.embedding_dim, embedding.positions(), embedding.values)
        self.value_type, self.scale_grad_by_freq = value_type, embedding.scale_grad_by_freq
        values = embedding.values.detach().cpu().numpy()
        scales = torch.from_numpy(quantise(values, value_type).scales).to(embedding.values.device)
        self.register_buffer("first_scales", scales.clamp(min=torch.finfo(torch.float32).tiny * 256))
        self.scale_shift = nn.Parameter(torch.zeros_like(scales))

    def vectors_of(self, ids: Tensor) -> Tensor:
        return compact_lookup(self.rounded_values(), self.row_starts, self.columns, ids, self.embedding_dim)

    def scales(self) -> Tensor:
        return self.first_scales * self.scale_shift.exp()  # [blocks]

    def rounded_values(self) -> Tensor:
        """The values as they will be stored `[K]`, differentiable in the values and the scales."""
        codes = self._soft_codes()
        rounded = codes + (codes.round() - codes).detach()  # gradients pass the rounding as if it were not there
        return (rounded * self.scales().unsqueeze(1)).view(-1)[: len(self.values)]

    def _soft_codes(self) -> Tensor:
        block, most = SCALE_BLOCK[self.value_type], MAX_CODE[self.value_type]
        padded = functional.pad(self.values, (0, len(self.first_scales) * block - len(self.values)))
        return (padded.view(-1, block) / self.scales().unsqueeze(1)).clamp(-most, most)  # [blocks, block]

    def storage_bytes(self) -> int:
        return self.to_table().storage_bytes

    @torch.no_grad()
    def to_table(self) -> CompactTable:
        """The stored form: the very codes and scales of the forward pass."""
        codes = self._soft_codes().round().view(-1)[: len(self.values)].cpu().numpy().astype(np.int8)
        quantised = Quantised(codes, self.scales().cpu().numpy())
        shape = (self.num_features, self.embedding_dim)
        return CompactTable.from_quantised(shape, self.positions(), quantised, value_type=self.value_type)


def quantise_aware_(model: nn.Module, value_type: ValueType) -> Sequence[str]:
    """Replace every `CompactEmbedding` of a model by one that trains with its stored values.

    Build the optimizer after this: the scales are new parameters. Returns the names of the tables it replaced.
    """
    names = [name for name, module in model.named_modules() if type(module) is CompactEmbedding]
    if not names:
        raise ConfigError("the model has no CompactEmbedding; retrain a ticket first, then quantise what it kept")
    for name in names:
        module = model.get_submodule(name)
        assert isinstance(module, CompactEmbedding)
        model.set_submodule(name, QuantisedEmbedding(module, value_type))
    return names
