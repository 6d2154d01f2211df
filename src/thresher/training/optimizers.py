"""Adam with a parameter group for each role: network, embeddings, thresholds, choices.

Weight decay is *coupled* (added to the gradient before Adam scales it), as in the PEP authors' code: it drives the
published search, and decoupled decay would disable it.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import torch
from torch import nn

from thresher.embeddings.base import Role, RowGradients
from thresher.errors import ConfigError

logger = logging.getLogger(__name__)

NETWORK = "network"
GROUP_NAMES = (NETWORK, *get_args(Role))
Updates = Literal["auto", "dense", "rows"]
SecondMoment = Literal["entry", "row"]
ROWS_FROM_ENTRIES = 1 << 22  # a table of 16 MB; dense updates of smaller ones are fast


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Adam's settings per role. In TOML: `[training.optimizer]`."""

    learning_rate: float = 1e-3
    """Learning rate of the network and of the embeddings."""
    weight_decay: float = 1e-5
    """Coupled L2 on the network and on the embeddings. More if the dense model overfits."""
    embedding_weight_decay: float | None = None
    """Coupled L2 on embeddings and first-order weights. Absent: `weight_decay`."""
    threshold_learning_rate: float = 1e-3
    """Learning rate of the thresholds."""
    threshold_decay: float = 0.0
    """Coupled L2 on the thresholds; it drives the published search (`embedding.pressure = "decay"`), where the authors
    use 1e-5."""
    choice_learning_rate: float = 1e-3
    """Learning rate of the parameters that choose among candidate sizes."""
    choice_decay: float = 0.0
    """Coupled L2 on the parameters that choose among candidate sizes."""
    max_grad_norm: float | None = None
    """Largest norm of all gradients together; larger ones are scaled down. The PEP authors use 100. Absent: no
    limit."""
    updates: Updates = "auto"
    """`dense`: every entry at every step. `rows`: only the rows of the batch (`RowAdam`; docs/row_updates.md). `auto`:
    `rows` if a table is so large that dense updates would take most of the time."""
    max_decay_steps: int = 100
    """Of `rows`: maximum number of skipped steps whose decay is applied when a row is updated again."""
    second_moment: SecondMoment = "entry"
    """Of `rows`: one per `entry`, or one per `row`, which saves the memory of a table."""
    threshold_second_moment: SecondMoment = "entry"
    """Of `rows`: the same for thresholds; one per row costs 0.001 to 0.002 of AUC on MovieLens-1M."""
    threshold_momentum: float = 0.0
    """Of `rows`: momentum of the thresholds. 0 saves the memory of a table; dense Adam uses 0.9."""

    def __post_init__(self) -> None:
        if self.max_grad_norm is not None and not 0.0 < self.max_grad_norm < float("inf"):
            raise ConfigError(f"max_grad_norm is {self.max_grad_norm}; it must be above 0 and finite, or absent")
        if self.max_decay_steps < 1:
            raise ConfigError(f"max_decay_steps is {self.max_decay_steps}; it must be at least 1")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float) and not 0.0 <= value < float("inf"):
                raise ConfigError(f"{field.name} is {value}; it must be 0 or more, and finite")


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Adam over the trainable parameters, in groups with a `name`; sets `row_gradients` of the tables to match."""
    own = config.embedding_weight_decay
    settings = {
        NETWORK: (config.learning_rate, config.weight_decay),
        "embeddings": (config.learning_rate, config.weight_decay if own is None else own),
        "thresholds": (config.threshold_learning_rate, config.threshold_decay),
        "choices": (config.choice_learning_rate, config.choice_decay),
    }
    groups: list[dict[str, Any]] = [
        {"name": name, "params": parameters, "lr": settings[name][0], "weight_decay": settings[name][1]}
        for name, parameters in parameters_by_role(model).items()
    ]
    if not groups:
        raise ConfigError("the model has no trainable parameter. Set requires_grad on those to train")
    row_updates = _wants_row_updates(model, config.updates)
    for module in model.modules():
        if isinstance(module, RowGradients):
            module.row_gradients = row_updates
        elif isinstance(module, nn.Embedding | nn.EmbeddingBag):
            module.sparse = row_updates and _can_be_sparse(module)
    if row_updates:
        from thresher.training.row_adam import RowAdam

        for group in groups:
            group["second_moment"] = config.second_moment
            if group["name"] == "thresholds":
                group["second_moment"] = config.threshold_second_moment
                group["betas"] = (config.threshold_momentum, 0.999)
        return RowAdam(groups, max_decay_steps=config.max_decay_steps, max_grad_norm=config.max_grad_norm)
    parameters = [parameter for group in groups for parameter in group["params"]]
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for p in parameters)
    optimizer = torch.optim.Adam(groups, fused=fused)
    if config.max_grad_norm is not None:
        optimizer.register_step_pre_hook(_Clip(config.max_grad_norm))
    return optimizer


@dataclass(frozen=True)
class _Clip:
    """Hook before a step of an optimizer that clips its gradients; unlike a closure it can be pickled."""

    max_grad_norm: float

    def __call__(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)


def parameters_by_role(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The trainable parameters by role, as submodules declare in `parameter_groups()`; all others are `network`."""
    roles = _declared_roles(model)
    found: dict[str, list[nn.Parameter]] = {name: [] for name in GROUP_NAMES}
    for parameter in model.parameters():  # a shared parameter appears once
        if parameter.requires_grad:
            found[roles.get(parameter, NETWORK)].append(parameter)
    return {name: parameters for name, parameters in found.items() if parameters}


def _can_be_sparse(table: nn.Embedding | nn.EmbeddingBag) -> bool:
    """Whether PyTorch supports sparse gradients with the settings of this table."""
    return not table.scale_grad_by_freq and getattr(table, "mode", None) != "max"


def _wants_row_updates(model: nn.Module, updates: Updates) -> bool:
    modules = [module for module in model.modules() if isinstance(module, RowGradients)]
    reasons = [reason for reason in (module.dense_gradients_reason() for module in modules) if reason is not None]
    if updates == "rows" and reasons:
        raise ConfigError(f'updates = "rows" is not possible: {reasons[0]}. Use updates = "dense"')
    if updates != "auto":
        return updates == "rows"
    tables = [
        parameter
        for module in model.modules()
        if isinstance(module, RowGradients | nn.Embedding | nn.EmbeddingBag)
        for parameter in module.parameters()
        if parameter.device.type == "cpu"
    ]
    is_large = max((table.numel() for table in tables), default=0) >= ROWS_FROM_ENTRIES
    if is_large and reasons:
        logger.info("every step updates whole tables instead of the rows of its batch: %s", reasons[0])
    return is_large and not reasons


def _declared_roles(model: nn.Module) -> dict[nn.Parameter, str]:
    roles: dict[nn.Parameter, str] = {}
    for module_name, module in model.named_modules():
        declare = getattr(module, "parameter_groups", None)
        if not callable(declare):
            continue
        declared: Mapping[str, Sequence[nn.Parameter]] = declare()
        for role, parameters in declared.items():
            where = f"{type(module).__name__} {module_name!r}"
            if role not in GROUP_NAMES:
                raise ConfigError(f"{where} declares the group {role!r}; known groups: {', '.join(GROUP_NAMES)}")
            for parameter in parameters:
                if roles.setdefault(parameter, role) != role:
                    what = f"a parameter of shape {list(parameter.shape)} as {role!r}"
                    raise ConfigError(f"{where} declares {what}, but another module as {roles[parameter]!r}")
    return roles
