"""Tables of user-defined models under PEP: `nn.Embedding`, `nn.EmbeddingBag` and tied `nn.Linear` with thresholds.

Each class is still a subclass of the plain module, holds the same Parameter under the same name, and gives
bit-identical outputs as long as its threshold is 0. `weight` gives the pruned values, `raw_weight` the Parameter.
"""

import sys
import weakref
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher._internal.mapped_tensors import is_traced
from thresher.attach.bags import ids_to_look_up, pool_bags
from thresher.embeddings.computed_weight import computed_weight
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.embeddings.thresholds import soft_threshold
from thresher.kernels.distinct import DistinctIds, is_ascending
from thresher.kernels.rows import expand_rows
from thresher.kernels.score_histogram import ScoreHistogram
from thresher.kernels.threshold_lookup import PrunedRows

_READ_PARAMETERS = {nn.Module.get_parameter.__code__, nn.Module.register_parameter.__code__}
"""Functions of PyTorch that read an attribute and mean the Parameter."""


class AttachedModule(PepEmbedding):
    """Base of attached modules: PEP on the table `[N, D]` of an existing module; it counts as one field.

    Several tables may share `thresholds`. `padding_id` is the row that all modules holding the table use for padding.
    """

    sparse: bool = False
    padding_idx: int | None = None

    def __init__(self, plain: nn.Module, config: PepConfig, thresholds: nn.Parameter, padding_id: int | None) -> None:
        weight = plain._parameters["weight"]
        assert weight is not None
        config = replace(config, embedding_dim=weight.shape[1])
        super().__init__([len(weight)], config, weight=weight, thresholds=thresholds, padding_id=padding_id)
        self.to(weight.device)
        if isinstance(plain, nn.Linear):
            self.register_parameter("bias", plain.bias)  # also if it is None, as nn.Linear does

    @property
    def raw_weight(self) -> nn.Parameter:
        weight = self._parameters.get("weight")
        if weight is None:
            weight = vars(self).get("weight")  # replicas of DataParallel have plain tensors instead of Parameters
        if weight is None:
            raise AttributeError("weight")
        return weight

    @property
    def weight(self) -> Tensor:
        """The table after Eq. 8, `[N, D]`, differentiable; in training, the rows that a gradient reaches are seen.

        It is the Parameter itself until the search starts pruning, and computed at each read afterwards.
        """
        if is_traced():
            if self.training:
                self.seen.fill_(True)
            return self.pruned_weight()
        if sys._getframe(1).f_code in _READ_PARAMETERS:
            return self.raw_weight
        if self.config.pressure == "plan" and float(self.clock) == -torch.inf:
            return self._marking_rows(self.raw_weight)
        return computed_weight(self._marking_rows(self.pruned_weight()))

    @weight.setter
    def weight(self, value: Tensor) -> None:
        vars(self)["weight"] = value

    def _marking_rows(self, values: Tensor) -> Tensor:
        """`values` `[N, D]` with a hook that marks the rows of its gradient as seen."""
        if self.training and torch.is_grad_enabled() and values.requires_grad:
            hooks = (values._backward_hooks or {}).values()
            if not any(isinstance(hook, _MarkRows) for hook in hooks):  # a Parameter is read many times
                values.register_hook(_MarkRows(self))  # type: ignore[no-untyped-call]
        return values

    @property
    def row_gradients(self) -> bool:
        """Whether gradients are row-sparse: those of tables with `sparse=True` are."""
        return self.sparse and self.config.pressure == "plan"

    @row_gradients.setter
    def row_gradients(self, value: bool) -> None:
        self.sparse = value

    def row_tables(self) -> Sequence[nn.Parameter]:
        return []  # a model may also read or change the table as a whole

    def score_histogram(self) -> ScoreHistogram:
        histogram = super().score_histogram()
        if self._follow_gradients():
            histogram.count_all_next()
        return histogram

    def _known_pruned_rows(self) -> PrunedRows:
        known = super()._known_pruned_rows()
        if self._follow_gradients():
            known.forget()
        return known

    def _follow_gradients(self) -> bool:
        """Whether the hook of `_FollowGradients` was missing; it is added."""
        weight = self.raw_weight
        hooks: dict[int, object] = getattr(weight, "_post_accumulate_grad_hooks", None) or {}
        if not (weight.is_leaf and weight.requires_grad):
            return False
        if any(isinstance(hook, _FollowGradients) and hook.module() is self for hook in hooks.values()):
            return False
        weight.register_post_accumulate_grad_hook(_FollowGradients(self))  # type: ignore[no-untyped-call]
        return True

    def expect_gradient(self, gradient: Tensor) -> None:
        """Rows of the table are about to be updated: those of a sparse gradient, or all."""
        histogram = self._score_histogram
        if gradient.is_sparse:
            ids = gradient._indices()[0]
            if histogram is not None:
                histogram.expect_changes(ids if gradient.is_coalesced() or is_ascending(ids) else ids.unique())  # type: ignore[no-untyped-call]
            return
        if histogram is not None:
            histogram.count_all_next()
        if self._pruned_rows is not None:
            self._pruned_rows.forget()

    @property
    def _looks_up_by_kernel(self) -> bool:
        """Whether lookups take the path of Thresher's own tables, which costs a fraction of PyTorch's."""
        weight = self.raw_weight
        if not self.row_gradients or not weight.requires_grad or weight.device.type != "cpu" or is_traced():
            return False
        # before pruning, kernels give the thresholds no gradient: DistributedDataParallel needs one, and optimizers
        # count steps by it, so that their bias correction would differ between one process and several
        return float(self.clock) > -torch.inf

    def pruned_rows(self, distinct: DistinctIds) -> Tensor:
        """The rows `[U, D]` of distinct ids `[U]` after Eq. 8; gradients are row-sparse if the plain table's were."""
        if self._looks_up_by_kernel:
            return self._without_padding_gradient(*self._rows_by_kernel(distinct, omit_pruned=False))
        return self._rows_by_torch(distinct.ids)

    def _without_padding_gradient(self, rows: Tensor, distinct: DistinctIds) -> Tensor:
        if self.padding_idx is None or not rows.requires_grad:
            return rows
        is_padding = distinct.ids == self.padding_idx
        return torch.where(is_padding.unsqueeze(1), rows.detach(), rows) if bool(is_padding.any()) else rows

    def _rows_by_torch(self, distinct: Tensor) -> Tensor:
        if self.training:
            self.seen[distinct] = True
        values = functional.embedding(distinct, self.raw_weight, self.padding_idx, sparse=self.sparse)  # [U, D]
        rows = self.granularity.rows_of(distinct, self.field_of_feature)  # [U]
        raw = functional.embedding(rows, self.thresholds, sparse=self.has_sparse_thresholds)  # [U, 1 | D]
        return _threshold_if_positive(values, self.threshold_function(self.clock + raw))

    @property
    def has_sparse_thresholds(self) -> bool:
        """Whether gradients of the thresholds are row-sparse: if the table's are and each row has its own threshold."""
        return self.sparse and self.granularity.rows == "feature"

    def pruned_weight(self) -> Tensor:
        return _threshold_if_positive(self.raw_weight, self.threshold())


def _threshold_if_positive(values: Tensor, threshold: Tensor) -> Tensor:
    """Eq. 8 where the threshold is positive, the values elsewhere: at threshold 0, entries of 0 still get gradients."""
    return torch.where(threshold > 0, soft_threshold(values, threshold), values)


class _MarkRows:
    """Hook of a table `[N, D]`: in training, marks the rows of its gradient as seen while the module is attached."""

    __torch_unserializable__ = True  # a table in another process gets its own hook when it is read

    def __init__(self, module: AttachedModule) -> None:
        self._module = weakref.ref(module)

    def __call__(self, gradient: Tensor) -> None:
        module = self._module()
        if not isinstance(module, AttachedModule) or not module.training:
            return
        if gradient.is_sparse:
            module.seen[gradient._indices()[0]] = True
        else:
            module.seen |= (gradient != 0).any(1)


class _FollowGradients:
    """Hook of a table after each gradient, whatever used it: a call, a read, a compiled graph."""

    __torch_unserializable__ = True

    def __init__(self, module: AttachedModule) -> None:
        self.module = weakref.ref(module)

    def __call__(self, weight: Tensor) -> None:
        module, gradient = self.module(), weight.grad
        if isinstance(module, AttachedModule) and gradient is not None:  # not detached since
            module.expect_gradient(gradient)


class _SkipConstructor(nn.Module):
    """Ends the chain of constructors before PyTorch's module, whose settings `replace_` copies."""

    def __init__(self) -> None:
        nn.Module.__init__(self)


class AttachedEmbedding(AttachedModule, _SkipConstructor, nn.Embedding):
    """Ids `[...]` → vectors `[..., D]`."""

    def forward(self, input: Tensor) -> Tensor:
        found = ids_to_look_up(input, self.num_embeddings, by_frequency=self.scale_grad_by_freq)
        if self._looks_up_by_kernel and not self.scale_grad_by_freq:
            rows, live = self._rows_by_kernel(found)
            return expand_rows(self._without_padding_gradient(rows, live), live)  # [..., D]
        vectors = self.pruned_rows(found)  # [U, D]
        return functional.embedding(found.places, vectors, scale_grad_by_freq=self.scale_grad_by_freq)  # [..., D]


class AttachedBag(AttachedModule, _SkipConstructor, nn.EmbeddingBag):
    """Bags of ids → pooled vectors `[B, D]`."""

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        found = ids_to_look_up(input, self.num_embeddings, by_frequency=self.scale_grad_by_freq)
        return pool_bags(self, self.pruned_rows(found), found, offsets, per_sample_weights)  # [B, D]


class AttachedLinear(AttachedModule, _SkipConstructor, nn.Linear):
    """A linear layer tied to an attached table: it multiplies with all pruned rows."""

    def dense_gradients_reason(self) -> str | None:
        return "a linear layer that is tied to a table uses all its rows"

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self.weight, self.bias)


def attached_module(
    plain: nn.Module, config: PepConfig, thresholds: nn.Parameter, padding_id: int | None
) -> AttachedModule:
    bag_or_linear = AttachedBag if isinstance(plain, nn.EmbeddingBag) else AttachedLinear
    attached = AttachedEmbedding if isinstance(plain, nn.Embedding) else bag_or_linear
    return attached(plain, config, thresholds, padding_id)
