"""Write docs/settings.md from the config classes: `python docs/make_settings.py`."""

import re
from pathlib import Path

from thresher._internal.setting_list import Setting
from thresher.cli.settings_command import COMPARE, all_settings, sections

PAGE = Path(__file__).with_name("settings.md")
HEAD = """\
# Settings

All settings with their defaults. `thresher settings` prints the same on the command line.
`python docs/make_settings.py` generates this page from the config classes.

Set a value with `--set search.plan_epochs=10`, or in a TOML file that `--config` names:

```toml
budgets = ["2%", "1%"]

[search]
plan_epochs = 10
```

*absent* means that there is no value; `--set KEY=none` removes one. `[[data.fields]]` is an array of tables, one for
each field.
"""
TITLES = {"": "Settings of a run", COMPARE: "Settings of a comparison"}
NOTES = {
    COMPARE: "`thresher compare` has options of these names, except for `--set embedding.embedding_dim=…` and "
    "`--set teacher_share=…`. In Python they are fields of `CompareConfig`."
}


def settings_page() -> str:
    """The whole page. Tables with the same settings share a section."""
    tables: dict[tuple[str, ...], list[str]] = {}
    notes = dict(NOTES)
    for title, settings in sections(all_settings()).items():
        rows = tuple(_row(setting) for setting in settings if not setting.is_table)
        for table in filter(lambda setting: setting.is_table, settings):
            notes[title] = table.description
        tables.setdefault(rows, []).append(title)
    parts = [HEAD]
    for rows, titles in tables.items():
        heading = TITLES.get(titles[0]) or " and ".join(f"`{title}`" for title in titles)
        note = " ".join(dict.fromkeys(notes[title] for title in titles if title in notes))
        parts.append("\n".join([f"## {heading}", *(["", note] if note else []), *_table(rows)]) + "\n")
    return re.sub(r"docs/(\w+\.md)\b(?!`)", r"[\1](\1)", "\n".join(parts))


def _table(rows: tuple[str, ...]) -> list[str]:
    return ["", "| setting | default | meaning |", "| --- | --- | --- |", *rows] if rows else []


def _row(setting: Setting) -> str:
    default = setting.default if setting.default in ("absent", "required") else f"`{setting.default}`"
    choices = f" {setting.expects[0].upper()}{setting.expects[1:]}." if setting.expects.startswith("one of ") else ""
    variants = "" if setting.variants in ((), (COMPARE,)) else f" *Only for: {', '.join(setting.variants)}.*"
    text = f"{setting.description}{choices}{variants}".replace("|", r"\|")
    return f"| `{setting.name}` | {default} | {text} |"


if __name__ == "__main__":
    PAGE.write_text(settings_page(), encoding="utf-8")
