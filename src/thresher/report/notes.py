"""Notes on stderr: sentences for people, folded to the width of a terminal."""

from functools import cache
from textwrap import wrap

from rich.console import Console

from thresher._internal.text import printable

MIN_WIDTH = 40


@cache  # notes must use the console of a running progress bar, which otherwise would be overwritten
def stderr() -> Console:
    return Console(stderr=True, highlight=False, emoji=False)


def print_note(text: str, *, fold: bool = True) -> None:
    """Print a note on stderr, on a terminal folded between words; `fold=False` for commands and paths to copy."""
    console, text = stderr(), printable(text)
    text = fold_text(text, console) if fold else text
    console.print(text, markup=False, soft_wrap=True)


def fold_text(text: str, console: Console) -> str:
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
