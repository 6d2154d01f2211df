"""Run the commands of the guides, and compare what they print with what the pages show.

    python docs/make_outputs.py            # prints every difference; exit code 1 if there is one
    python docs/make_outputs.py --write    # replaces the outputs in the pages

A `text` block below a `sh` block shows what the block's last command prints, or some of its lines. The commands of all
pages run in one folder, with the file that the first Python block of docs/your_data.md writes. Equal commands run once.
"""

import contextlib
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path

from typer.testing import CliRunner

ROOT = Path(__file__).parent.parent
PAGES = ("docs/your_data.md", "README.md", "docs/quickstart.md", "docs/data.md", "docs/runs.md",
         "docs/tickets_and_budgets.md", "docs/distillation.md", "docs/choosing.md")  # fmt: skip
SHOWN = re.compile(r"^```sh\n([^`]*?)^```\n\n(?:(?:(?!```|#|\|)[^\n]+\n)+\n)?^```text\n([^`]*?)^```$", re.MULTILINE)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
MEASURED, COUNTED, LEAST = 0.03, 0.15, 0.02
"""Between processors measured numbers may differ by 3 % or 0.02, and counts of a search by 15 %."""


def prepare(folder: Path) -> None:
    """Write the data of all pages: `clicks.csv` and `new_rows.csv`."""
    code = re.search(r"^```python\n(.*?)^```$", (ROOT / PAGES[0]).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert code is not None, f"{PAGES[0]} has no Python block"
    with contextlib.chdir(folder):
        exec(code[1], {})


def commands_of(block: str) -> list[list[str]]:
    """The words of each `thresher` command of a block; pages are not opened in a browser."""
    lines = [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines()]
    return [[word for word in words[1:] if word != "--open"] for words in lines if words[:1] == ["thresher"]]


def run(words: list[str]) -> str:
    from thresher.cli.app import app

    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, f"thresher {shlex.join(words)}: {result.output}"
    return result.output


def pattern(line: str) -> str:
    """A line without its numbers, bars and spaces."""
    return re.sub(r"[\s█-▏]+", " ", NUMBER.sub("#", line)).strip()


def lines_shown(shown: str, printed: str) -> list[tuple[str, str | None]]:
    """Each shown line with the printed line that it stands for; None if there is none."""
    left = printed.splitlines()
    found: list[tuple[str, str | None]] = []
    for line in shown.splitlines():
        at = next((at for at, other in enumerate(left) if pattern(other) == pattern(line)), None)
        found.append((line, line if not line.strip() else None if at is None else left.pop(at).rstrip()))
    return found


def is_close(shown: str, printed: str) -> bool:
    """Whether two lines of one pattern are equal, within what differs between processors."""
    for one, other in zip(NUMBER.finditer(shown), NUMBER.finditer(printed), strict=True):
        a, b = (float(match[0].replace(",", "")) for match in (one, other))
        limit = max(MEASURED * abs(a), LEAST) if "." in one[0] else COUNTED * abs(a)
        if abs(a - b) > limit:
            return False
    return True


def compare(page: str, printed: dict[str, str], *, write: bool) -> list[str]:
    """Run the commands of a page; returns what is shown and not printed.

    Args:
        printed: command → what it printed, from earlier pages; new ones are added.
    """
    path, wrong = ROOT / page, []

    def replace(match: re.Match[str]) -> str:
        words: list[str] = []
        for words in commands_of(match[1]):
            key = shlex.join(words)
            if key not in printed:
                printed[key] = run(words)
        lines = lines_shown(match[2], printed[shlex.join(words)])
        for line, other in lines:
            if other is None or not is_close(line, other):
                wrong.append(f"{page}: thresher {shlex.join(words)}\n  shown   {line}\n  printed {other}")
        text = "".join(f"{line if other is None else other}\n" for line, other in lines)
        return match[0].replace(f"```text\n{match[2]}", f"```text\n{text}")

    text = path.read_text(encoding="utf-8")
    updated = SHOWN.sub(replace, text)
    if write and updated != text:
        path.write_text(updated, encoding="utf-8")
    return wrong


def main(*, write: bool = False) -> list[str]:
    """Compare, or update, all pages; returns the differences."""
    printed: dict[str, str] = {}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        os.chdir(folder)
        try:
            return [line for page in PAGES for line in compare(page, printed, write=write)]
        finally:
            os.chdir(before)


if __name__ == "__main__":
    differences = main(write="--write" in sys.argv)
    print("\n".join(differences) or "All outputs are as shown.")
    sys.exit(bool(differences) and "--write" not in sys.argv)
