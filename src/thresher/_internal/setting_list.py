"""All settings of a config class with type, default and description: what a reference of settings is made of.

The description of a field is the string literal below it in the class:

    patience: int = 3
    \"\"\"Epochs without improvement after which training stops.\"\"\"
"""

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Any, Union, get_args, get_origin, get_type_hints

from thresher._internal.config_builder import describe_type, field_default, format_value, variant_name
from thresher._internal.settings import to_plain


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting, or a table of settings.

    Attributes:
        key: dotted name; `[]` stands for the items of an array of tables: `data.fields[].name`.
        expects: what its value must be, in words.
        default: as in TOML; `absent`, or `required` if a value must be given; empty for a table.
        variants: the models, methods or commands that have it; empty if it always exists.
    """

    key: str
    expects: str
    default: str
    description: str
    variants: tuple[str, ...] = ()

    @property
    def is_table(self) -> bool:
        return not self.default

    @property
    def table(self) -> str:
        """The key of the table that contains it; of a table, its own key."""
        return self.key if self.is_table else self.key.rpartition(".")[0]

    @property
    def name(self) -> str:
        return self.key.rpartition(".")[2]


@cache
def field_descriptions(cls: type) -> dict[str, str]:
    """Field → its description, of a dataclass and its bases; without those whose source code is not available."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            source = textwrap.dedent(inspect.getsource(base))
        except (OSError, TypeError):  # typed into an interpreter
            continue
        body = ast.parse(source).body[0]
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for field, below in pairwise(statements):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and (text := _string(below)):
                found[field.target.id] = " ".join(text.split())
    return found


def list_settings(cls: Any, key: str = "") -> list[Setting]:
    """The settings of a config class and of all tables in it, in the order of its fields."""
    hints, descriptions = get_type_hints(cls), field_descriptions(cls)
    found: list[Setting] = []
    for field in dataclasses.fields(cls):
        name, expects = f"{key}.{field.name}" if key else field.name, describe_type(hints[field.name])
        table, is_array = _table_of(hints[field.name])
        default = "" if table is not None and not is_array else _default(field)
        description = descriptions.get(field.name, "")
        found.append(Setting(key=name, expects=expects, default=default, description=description))
        if table is None:
            continue
        if not hasattr(table, "config_variants"):
            found += list_settings(table, f"{name}[]" if is_array else name)
        elif not is_array:
            found += _variant_settings(table, name, field_default(field))
    return found


def _variant_settings(base: Any, key: str, default: Any) -> Iterator[Setting]:
    """The tag of a class with variants, then every setting of any variant once, with the variants that have it."""
    variants = base.config_variants()
    shared: dict[Setting, list[str]] = {}
    for name, variant in variants.items():
        for setting in list_settings(variant, key):
            shared.setdefault(setting, []).append(name)
    yield Setting(
        key=f"{key}.{base.config_tag}",
        expects=f"one of {', '.join(map(format_value, variants))}",
        default=format_value(variant_name(default)),
        description=f"Which one; the other settings of `[{key}]` depend on it.",
    )
    for setting, names in shared.items():
        of_all = len(names) == len(variants)
        yield dataclasses.replace(setting, variants=() if of_all else tuple(names))


def _table_of(hint: Any) -> tuple[Any, bool]:
    """The config class inside a type, and whether the type is an array of it; None if there is none."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next((member for member in get_args(hint) if member is not types.NoneType), hint)
    is_array = get_origin(hint) is tuple
    inner = get_args(hint)[0] if is_array else hint
    is_table = dataclasses.is_dataclass(inner) and not hasattr(inner, "from_config_text")
    return (inner, is_array) if is_table else (None, False)


def _default(field: "dataclasses.Field[Any]") -> str:
    if field.default is field.default_factory is dataclasses.MISSING:
        return "required"
    value = field_default(field)
    return "absent" if value is None else format_value(to_plain(value))


def _string(node: ast.stmt) -> str:
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return str(node.value.value) if is_text else ""  # type: ignore[attr-defined]
