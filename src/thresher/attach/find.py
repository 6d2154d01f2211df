"""Which tables of a foreign model may be pruned, under which names, and what else holds them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn

from thresher.attach.tables import ForeignTable
from thresher.errors import AttachError

Where = str | Callable[[nn.Module, str], bool]
"""Which tables: a name pattern (`"user_*"`) or a function of the module and its qualified name."""


@dataclass(frozen=True)
class FoundTable:
    """One table of a model and every module that holds it."""

    weight: nn.Parameter
    modules: Mapping[str, nn.Module]
    """Qualified name → module, in the model's order; one module may have two names, two modules one table."""

    @property
    def name(self) -> str:
        return next(iter(self.modules))

    @property
    def padding_id(self) -> int | None:
        """The row that every lookup takes for padding, if they agree on one."""
        padding = {module.padding_idx for module in self.modules.values() if not isinstance(module, nn.Linear)}
        return padding.pop() if len(padding) == 1 else None  # type: ignore[return-value]

    def __str__(self) -> str:
        num_features, embedding_dim = self.weight.shape
        return f"{self.name} [{num_features} × {embedding_dim}]"


def find_tables(
    model: nn.Module, where: Where | None, min_features: int, min_embedding_dim: int, *, trained: bool
) -> list[FoundTable]:
    """The plain tables of `model` that the user chose, checked; raises with the reason when one cannot be pruned."""
    if isinstance(model, nn.Embedding | nn.EmbeddingBag):
        raise AttachError(
            "the model is itself an embedding; wrap it in a module (nn.Sequential(table) will do) and attach to that"
        )
    every = _tables(model)
    chosen = [
        table
        for table in every
        if len(table.weight) >= min_features
        and table.weight.shape[1] >= min_embedding_dim
        and any(_selects(where, module, name) for name, module in table.modules.items())
    ]
    if not chosen:
        raise AttachError(_nothing_matched(model, every, where, min_features, min_embedding_dim))
    for table in chosen:
        _check(table)
        if not trained:
            _check_learns(table)
    return chosen


def _tables(model: nn.Module) -> list[FoundTable]:
    holders: dict[nn.Parameter, dict[str, nn.Module]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        for parameter in dict.fromkeys(module._parameters.values()):
            if parameter is not None:
                holders.setdefault(parameter, {})[name] = module
    return [
        FoundTable(weight, modules)
        for weight, modules in holders.items()
        if weight.ndim == 2 and weight.is_floating_point() and any(_is_plain_table(m) for m in modules.values())
    ]


def _is_plain_table(module: nn.Module) -> bool:
    return isinstance(module, nn.Embedding | nn.EmbeddingBag) and not isinstance(module, ForeignTable)


def _selects(where: Where | None, module: nn.Module, name: str) -> bool:
    if not _is_plain_table(module):
        return False
    return where is None or (fnmatchcase(name, where) if isinstance(where, str) else where(module, name))


def _check(table: FoundTable) -> None:
    """Refuse what would silently change the model."""
    leave_out = "or leave the table out with where=…"
    for name, module in table.modules.items():
        kind = next((kind for kind in (nn.Embedding, nn.EmbeddingBag, nn.Linear) if isinstance(module, kind)), None)
        if kind is None or module._parameters.get("weight") is not table.weight:
            raise AttachError(
                f"table {table} is also a parameter of {name or 'the model itself'} ({type(module).__qualname__}), "
                f"which would go on using it unpruned; hold it only in embeddings and linear layers, {leave_out}"
            )
        if type(module).forward is not kind.forward or "forward" in vars(module):
            raise AttachError(
                f"{name} ({type(module).__qualname__}) has a forward of its own, which attaching would replace; "
                f"keep a plain nn.{kind.__name__} inside it, {leave_out}"
            )
        if more := _holds_more(module):
            raise AttachError(
                f"{name} ({type(module).__qualname__}) holds {', '.join(more)} beside its table, which attaching would "
                f"drop; keep a plain nn.{kind.__name__} inside it, {leave_out}"
            )
        if getattr(module, "max_norm", None) is not None:
            raise AttachError(
                f"table {table} has max_norm={module.max_norm}: each lookup would rescale rows behind the thresholds' "
                f"back; set max_norm to None, {leave_out}"
            )


def _holds_more(module: nn.Module) -> list[str]:
    """Names of Parameters, buffers and modules that a subclass of PyTorch's own has added to it."""
    own = {"weight", "bias"} if isinstance(module, nn.Linear) else {"weight"}
    held = {**module._parameters, **module._buffers, **module._modules}
    return [name for name, value in held.items() if name not in own and value is not None]


def _check_learns(table: FoundTable) -> None:
    if not table.weight.requires_grad:
        raise AttachError(
            f"table {table} is frozen (requires_grad is False): entries that nothing trains lose to those of other "
            "tables; unfreeze it, leave it out with where=…, or say trained=True to prune its values as they are"
        )


def _nothing_matched(
    model: nn.Module, every: list[FoundTable], where: Where | None, min_features: int, min_embedding_dim: int
) -> str:
    asked = [] if where is None else [f"where={where!r}" if isinstance(where, str) else "where=<function>"]
    asked += [f"min_features={min_features}"] if min_features else []
    asked += [f"min_embedding_dim={min_embedding_dim}"]
    if any(isinstance(module, ForeignTable) for module in model.modules()):
        return f"no table left to attach ({', '.join(asked)}): the model has been attached before; detach_ it first"
    if not every:
        return f"{type(model).__qualname__} holds no nn.Embedding or nn.EmbeddingBag; there is no table to prune"
    found = ", ".join(str(table) for table in every[:8]) + (", …" if len(every) > 8 else "")
    return f"no table matched {', '.join(asked)}; the model has {found} (width 1 needs min_embedding_dim=1)"
