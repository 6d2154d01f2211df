"""Notes on stderr, folded to the width of a terminal, and how the columns of raw files are used as such notes."""

from dataclasses import dataclass
from functools import cache
from textwrap import wrap
from typing import TYPE_CHECKING

from thresher._internal.text import list_first, printable

if TYPE_CHECKING:
    from rich.console import Console

    from thresher.data.encode.sources import DataSource


MIN_WIDTH = 40


@cache  # notes must use the console of a running progress bar, which otherwise would be overwritten
def stderr() -> "Console":
    from rich.console import Console

    return Console(stderr=True, highlight=False, emoji=False)


def print_note(text: str, *, fold: bool = True) -> None:
    """Print a note on stderr, on a terminal folded between words; `fold=False` for commands and paths to copy."""
    console, text = stderr(), printable(text)
    text = fold_text(text, console) if fold else text
    console.print(text, markup=False, soft_wrap=True)


def fold_text(text: str, console: "Console") -> str:
    """Text folded between words to the width of a terminal, each line indented like its first; unchanged elsewhere."""
    if not console.is_terminal:
        return text
    folded: list[str] = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        further = f"{indent}  " if indent else ""
        width = max(console.width, MIN_WIDTH)
        folded += wrap(line, width, subsequent_indent=further, break_long_words=False, break_on_hyphens=False) or [""]
    return "\n".join(folded)


@dataclass(frozen=True)
class SettingNames:
    """What a caller sets to change a guess: by default the arguments of `prune` and `compare`."""

    label: str = "label"
    columns: str = "label, config.data.fields, config.data.drop"
    positive: str = "config.data.positive"


def guess_notes(source: "DataSource", names: SettingNames) -> list[str]:
    """The guessed columns and labels of raw files; nothing for sources that guess nothing."""
    from thresher.data.encode.user_files import FilesSource
    from thresher.data.read.column_values import SHOWN_VALUES

    if not isinstance(source, FilesSource):
        return []
    notes: list[str] = []
    guess, positive = source.guess, source.plan.label.positive
    if source.labels and positive and not any(each.meaning for each in source.labels):
        found = list_first((repr(each.value) for each in source.labels), SHOWN_VALUES)
        wanted = " or ".join(map(repr, positive))
        notes.append(f"No label in the sampled rows is {wanted} ({names.positive}). Found {found}.")
    if guess is None:
        return notes
    if guess.only_label:
        notes.append(f"Columns used, with a guessed label (change it with {names.label}):")
    else:
        rows = f" from {guess.rows}" if guess.rows else ""
        notes.append(f"Guessed columns{rows} (change them with {names.columns}):")
    width = max(len(column) for column, _ in guess.reasons)
    notes += [f"  {column:<{width}}  {reason}" for column, reason in guess.reasons]
    if guess.unused:
        notes.append(f"Not used: {', '.join(guess.unused)}")
    return notes
