"""Finds the embedding tables of a model that can be pruned, and all modules that hold them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from torch import nn

from thresher._internal.text import list_first
from thresher.attach.attached_tables import AttachedModule
from thresher.errors import AttachError

Where = str | Callable[[nn.Module, str], bool]
"""Selects tables: a name pattern (`"user_*"`) or a function of the module and its qualified name."""


@dataclass(frozen=True)
class FoundTable:
    """One table of a model and every module that holds it."""

    weight: nn.Parameter
    modules: Mapping[str, nn.Module]  # by qualified name; a module may have several names, a table several modules

    @property
    def padding_id(self) -> int | None:
        """The padding row, if all modules that look up the table have the same one."""
        padding = {module.padding_idx for module in self.modules.values() if not isinstance(module, nn.Linear)}
        return padding.pop() if len(padding) == 1 else None  # type: ignore[return-value]

    def __str__(self) -> str:
        num_features, embedding_dim = self.weight.shape
        return f"{next(iter(self.modules))} [{num_features} × {embedding_dim}]"


def find_tables(
    model: nn.Module, where: Where | None, min_features: int, min_embedding_dim: int, *, trained: bool
) -> list[FoundTable]:
    """Find the plain tables of `model` that match; raise AttachError if there is none or one cannot be pruned."""
    if isinstance(model, nn.Embedding | nn.EmbeddingBag):
        raise AttachError("the model itself is an embedding table. Wrap it in a module, e.g. nn.Sequential(table).")
    every = _plain_tables(model)
    chosen = [
        table
        for table in every
        if len(table.weight) >= min_features
        and table.weight.shape[1] >= min_embedding_dim
        and any(_matches(where, module, name) for name, module in table.modules.items())
    ]
    if not chosen:
        raise AttachError(_no_match_message(model, every, where, min_features, min_embedding_dim))
    for table in chosen:
        _check_can_be_pruned(table)
        if not trained and not table.weight.requires_grad:
            raise AttachError(f"table {table} is frozen. Unfreeze it, exclude it with where=…, or pass trained=True.")
    return chosen


def _plain_tables(model: nn.Module) -> list[FoundTable]:
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
    return isinstance(module, nn.Embedding | nn.EmbeddingBag) and not isinstance(module, AttachedModule)


def _matches(where: Where | None, module: nn.Module, name: str) -> bool:
    if not _is_plain_table(module):
        return False
    return where is None or (fnmatchcase(name, where) if isinstance(where, str) else where(module, name))


def _check_can_be_pruned(table: FoundTable) -> None:
    """Raise if attaching would silently change what the model computes."""
    exclude = "or exclude the table with where=…"
    for name, module in table.modules.items():
        plain = next((plain for plain in (nn.Embedding, nn.EmbeddingBag, nn.Linear) if isinstance(module, plain)), None)
        if plain is None or module._parameters.get("weight") is not table.weight:
            raise AttachError(
                f"table {table} is also a parameter of {name or 'the model itself'} ({type(module).__qualname__}), "
                f"which would use it unpruned. Share it only between embeddings and linear layers, {exclude}."
            )
        keep_plain = f"Keep a plain nn.{plain.__name__} inside it, {exclude}."
        if type(module).forward is not plain.forward or "forward" in vars(module):
            raise AttachError(f"{name} ({type(module).__qualname__}) overrides forward. {keep_plain}")
        own = {"weight", "bias"} if plain is nn.Linear else {"weight"}
        members = {**module._parameters, **module._buffers, **module._modules}
        if added := [key for key, value in members.items() if key not in own and value is not None]:
            raise AttachError(
                f"{name} ({type(module).__qualname__}) holds {', '.join(added)} in addition to its table, and "
                f"attaching would drop them. {keep_plain}"
            )
        if getattr(module, "max_norm", None) is not None:
            raise AttachError(
                f"table {table} has max_norm={module.max_norm}, so lookups rescale its rows. Set it to None, {exclude}."
            )


def _no_match_message(
    model: nn.Module, every: list[FoundTable], where: Where | None, min_features: int, min_embedding_dim: int
) -> str:
    filters = [] if where is None else [f"where={where!r}" if isinstance(where, str) else "where=<function>"]
    filters += [f"min_features={min_features}"] if min_features else []
    filters += [f"min_embedding_dim={min_embedding_dim}"]
    if any(isinstance(module, AttachedModule) for module in model.modules()):
        return f"no table left to attach ({', '.join(filters)}): the model is already attached. Call detach_ first."
    if not every:
        return f"{type(model).__qualname__} has no table to prune: it holds no nn.Embedding or nn.EmbeddingBag."
    found = list_first(every, 8)
    return f"no table matched {', '.join(filters)}. The model has {found}. Tables of width 1 need min_embedding_dim=1."
