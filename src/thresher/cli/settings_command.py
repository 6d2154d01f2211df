"""settings: what each setting means, its default, and when to change it; made from the config classes."""

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer

from thresher._internal.registry import import_modules
from thresher.cli.console import handle_errors, print_json, print_rows, stdout
from thresher.cli.options import Imports, Json
from thresher.errors import ConfigError
from thresher.report.notes import fold_text

if TYPE_CHECKING:
    from thresher._internal.setting_list import Setting

KEY_HELP = "A setting (search.plan_epochs, or plan_epochs) or a table (training); by default all settings."
COMPARE = "thresher compare"


@handle_errors()
def settings(
    key: Annotated[str | None, typer.Argument(metavar="KEY", help=KEY_HELP, show_default=False)] = None,
    imports: Imports = None,
    as_json: Json = False,
) -> None:
    """Explain settings: what they mean, their defaults, and when to change them.

    Set them with --set KEY=VALUE, or in a TOML file that --config names.
    """
    import_modules(imports or ())
    known = all_settings()
    found = known if key is None else find_settings(known, key)
    if as_json:
        print_json([asdict(setting) for setting in found])
    elif key is None:
        _print_overview(found)
    else:
        _print_details(found)


def all_settings() -> "list[Setting]":
    """The settings of a run, those without a table first, and what only a comparison has."""
    from thresher._internal.setting_list import list_settings
    from thresher.experiment.comparison.compare_config import CompareConfig
    from thresher.experiment.config import RunConfig

    of_runs = list_settings(RunConfig)
    own = {item.name for item in fields(CompareConfig)} - {"data", "search", "training", "imports"}
    of_comparisons = [setting for setting in list_settings(CompareConfig) if setting.key in own]
    return [
        *(setting for setting in of_runs if not setting.table),
        *(replace(setting, variants=(COMPARE,)) for setting in of_comparisons),
        *(setting for setting in of_runs if setting.table),
    ]


def find_settings(known: "Sequence[Setting]", key: str) -> "list[Setting]":
    """The setting or the table of this key, or all settings whose key ends with this name."""
    wanted = key.strip().strip("[]").removesuffix(".")
    inside = (f"{wanted}.", f"{wanted}[].")
    found = [s for s in known if s.key == wanted or s.key.startswith(inside)]
    found = found or [s for s in known if s.name == wanted or s.key.endswith(f".{wanted}")]
    if not found:
        near = get_close_matches(wanted, [word for s in known for word in (s.key, s.name)], 1)
        hint = f" Did you mean {near[0]!r}?" if near else " See all with: thresher settings"
        raise ConfigError(f"unknown setting {key!r}.{hint}")
    return found


def sections(found: "Sequence[Setting]") -> "dict[str, list[Setting]]":
    """Title → settings: those without a table, those of a comparison, then table by table."""
    grouped: dict[str, list[Setting]] = {}
    for setting in found:
        grouped.setdefault(_title(setting), []).append(setting)
    return grouped


def _title(setting: "Setting") -> str:
    """The header of its table in TOML; empty for a setting without a table."""
    if setting.variants == (COMPARE,):
        return COMPARE
    table, is_array = setting.table.removesuffix("[]"), setting.table.endswith("[]")
    return f"[[{table}]]" if is_array else f"[{table}]" if table else ""


def _print_overview(found: "Sequence[Setting]") -> None:
    """All settings by table, with the first sentence of their descriptions."""
    for title, group in sections(found).items():
        if title:
            print(f"\n{title}")
        rows = [
            {"setting": setting.name, "default": setting.default, "": setting.description.split(". ")[0].rstrip(".")}
            for setting in group
            if not setting.is_table
        ]
        if rows:
            print_rows(rows)
    print("\nMore on a setting or a table: thresher settings search.plan_epochs")


def _print_details(found: "Sequence[Setting]") -> None:
    console = stdout()
    for at, setting in enumerate(found):
        print("\n" * bool(at) + (f"[{setting.key}]" if setting.is_table else setting.key))
        lines = [setting.description]
        if not setting.is_table:
            lines.append(f"Expected: {setting.expects}. Default: {setting.default}.")
        if setting.variants:
            lines.append(f"Only for: {', '.join(setting.variants)}.")
        for line in lines:
            print(fold_text(f"    {line}", console))
