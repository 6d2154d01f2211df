"""Source, documentation and README use the terms of the field instead of a private vocabulary."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
PRIVATE_WORDS = [
    "by heart", "told plainly", "whoever", "nobody", r"its kin\b", "Tomorrow's ids", "announce[sd]?", r"\btaught\b",
    r"\blessons?\b", "fewer bits", "has a say", r"\bby labels\b", r"\btold\b", "is taken up again", "passe[sd] over",
]  # fmt: skip


@pytest.mark.parametrize("word", PRIVATE_WORDS)
def test_private_words_are_not_used(word):
    pattern = re.compile(word, re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in FILES
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found
