"""Tables of user-defined models under PEP: `nn.Embedding`, `nn.EmbeddingBag` and tied `nn.Linear` with thresholds.

Each class is still a subclass of the plain module, holds the same Parameter under the same name, and gives
bit-identical outputs as long as its threshold is 0. `weight` gives the pruned values, `raw_weight` the Parameter.
`replace_` turns a plain module into another one in place: the object stays the same, so parent modules, lists, closures
and hooks that refer to it see the change.
"""

import sys
import weakref
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from thresher._internal.tracing import is_traced
from thresher.embeddings.computed_weight import computed_weight
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.embeddings.thresholds import soft_threshold
from thresher.kernels.distinct import DistinctIds, find_distinct

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

    def dense_gradients_reason(self) -> str | None:
        return "an attached table keeps the gradient layout of its plain module"

    def pruned_rows(self, distinct: Tensor) -> Tensor:
        """The rows `[U, D]` of distinct ids `[U]` after Eq. 8; gradients are row-sparse if the plain table's were."""
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


class BagSettings(Protocol):
    """Pooling settings of an `nn.EmbeddingBag`."""

    mode: str
    padding_idx: int | None
    include_last_offset: bool
    scale_grad_by_freq: bool


def pool_bags(
    bag: BagSettings, vectors: Tensor, found: DistinctIds, offsets: Tensor | None, per_sample_weights: Tensor | None
) -> Tensor:
    """Pool the vectors `[U, D]` of distinct ids into bags `[B, D]` with the settings of `bag`.

    With padding the distinct ids must be ascending.
    """
    places = found.places.long() if offsets is None else found.places.to(offsets.dtype)
    padding = None
    if bag.padding_idx is not None:  # its position among the distinct ids; an added row of zeros if it is not there
        padding = int((found.ids < bag.padding_idx).sum())
        if not bool((found.ids[padding : padding + 1] == bag.padding_idx).any()):
            vectors, padding = functional.pad(vectors, (0, 0, 0, 1)), len(vectors)
    return functional.embedding_bag(
        places,
        vectors,
        offsets,
        scale_grad_by_freq=bag.scale_grad_by_freq,
        mode=bag.mode,
        per_sample_weights=per_sample_weights,
        include_last_offset=bag.include_last_offset,
        padding_idx=padding,
    )


class _SkipConstructor(nn.Module):
    """Ends the chain of constructors before PyTorch's module, whose settings `replace_` copies."""

    def __init__(self) -> None:
        nn.Module.__init__(self)


def _ids_to_look_up(ids: Tensor, num_features: int) -> DistinctIds:
    """The distinct ids of a batch; all ids while a graph is traced, because the number of distinct ids is unknown."""
    if torch.compiler.is_compiling():
        places = torch.arange(ids.numel(), device=ids.device).view_as(ids)
        return DistinctIds(ids.flatten().long(), places, num_features)
    return find_distinct(ids, num_features)


class AttachedEmbedding(AttachedModule, _SkipConstructor, nn.Embedding):
    """Ids `[...]` → vectors `[..., D]`."""

    def forward(self, input: Tensor) -> Tensor:
        found = _ids_to_look_up(input, self.num_embeddings)
        vectors = self.pruned_rows(found.ids)  # [U, D]
        return functional.embedding(found.places, vectors, scale_grad_by_freq=self.scale_grad_by_freq)  # [..., D]


class AttachedBag(AttachedModule, _SkipConstructor, nn.EmbeddingBag):
    """Bags of ids → pooled vectors `[B, D]`."""

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        find = _ids_to_look_up if self.padding_idx is None else find_distinct  # padding needs ascending ids
        found = find(input, self.num_embeddings)
        return pool_bags(self, self.pruned_rows(found.ids), found, offsets, per_sample_weights)  # [B, D]


class AttachedLinear(AttachedModule, _SkipConstructor, nn.Linear):
    """A linear layer tied to an attached table: it multiplies with all pruned rows."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.linear(input, self.weight, self.bias)


def attached_module(
    plain: nn.Module, config: PepConfig, thresholds: nn.Parameter, padding_id: int | None
) -> AttachedModule:
    bag_or_linear = AttachedBag if isinstance(plain, nn.EmbeddingBag) else AttachedLinear
    attached = AttachedEmbedding if isinstance(plain, nn.Embedding) else bag_or_linear
    return attached(plain, config, thresholds, padding_id)


def replace_(module: nn.Module, replacement: nn.Module, *, keep_original: bool, drop: Collection[str] = ()) -> None:
    """Give `module` the class and state of `replacement`; its hooks, its mode and its public attributes stay.

    Args:
        keep_original: store the original class and state, so that `restore_` can bring them back.
        drop: names of Parameters of the original that are not stored; set them before calling `restore_`.
    """
    original_class, state = vars(module).get("_original", (type(module), dict(vars(module))))
    is_plain = issubclass(original_class, nn.Embedding | nn.EmbeddingBag | nn.Linear)
    public = {key: value for key, value in state.items() if is_plain and not key.startswith("_")}
    _set_class_and_state(module, type(replacement), {**public, **vars(replacement)})
    if keep_original:
        parameters = {name: None if name in drop else value for name, value in state["_parameters"].items()}
        vars(module)["_original"] = (original_class, {**state, "_parameters": parameters})


def can_restore(module: nn.Module) -> bool:
    return "_original" in vars(module)


def restore_(module: nn.Module) -> None:
    """Undo `replace_`; the module's current Parameters of the same names are kept."""
    original_class, state = vars(module)["_original"]
    parameters = {name: module._parameters.get(name, value) for name, value in state["_parameters"].items()}
    _set_class_and_state(module, original_class, {**state, "_parameters": parameters})


def _set_class_and_state(module: nn.Module, new_class: type[nn.Module], state: dict[str, Any]) -> None:
    hooks_and_mode = {key: value for key, value in vars(module).items() if "hook" in key or key == "training"}
    module.__class__ = new_class
    module.__dict__ = {**state, **hooks_and_mode}
