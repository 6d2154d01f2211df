"""How the columns of raw files are used, as sentences, so that a wrong guess is seen early."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher._internal.text import list_first

if TYPE_CHECKING:
    from thresher.data.encode.sources import DataSource


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
