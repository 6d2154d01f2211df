"""The exceptions Thresher raises. Each message says what was wrong, where, what was expected and what to do.

The command line turns every `ThresherError` into one line on stderr and exit code 2; anything else is a bug.
"""

from pathlib import Path


class ThresherError(Exception):
    """Base of all errors a user can cause and mend."""


class ConfigError(ThresherError):
    """A setting is unknown, of the wrong type, or contradicts another."""


class BudgetError(ThresherError):
    """A budget cannot be read, or cannot be met by the model at hand; `budget` is which, where it is one of several."""

    def __init__(self, message: str, *, budget: str | None = None) -> None:
        super().__init__(message)
        self.budget = budget


class TimeLimitReached(ThresherError):  # noqa: N818 – an event rather than an error
    """`should_stop` ended a training; its checkpoint holds the last completed step."""


class NonFiniteError(ThresherError):
    """A weight, a threshold or a gradient is NaN or infinite, so that training cannot go on."""


class FormatError(ThresherError):
    """A file of ours is damaged, incomplete, or of a version this release cannot read."""


class AttachError(ThresherError):
    """A model has no table that can be pruned, or holds one that must not be touched."""


class MissingExtraError(ThresherError):
    """An optional package is needed; the message names the extra that brings it."""


class DataError(ThresherError):
    """A raw file or a row in it is not what the schema says.

    The place is part of the message, in the form editors understand: `file:line: column 'name': what`.
    """

    def __init__(
        self, message: str, *, file: str | Path | None = None, line: int | None = None, column: str | None = None
    ) -> None:
        place = "" if file is None else f"{file}:{line}: " if line is not None else f"{file}: "
        super().__init__(f"{place}{f'column {column!r}: ' if column is not None else ''}{message}")
        self.file, self.line, self.column = file, line, column


class IdTypeError(DataError, TypeError):
    """Ids that are no whole numbers: rounded in silence they would train and read other rows."""


class OutsideTableError(DataError, IndexError):
    """An id has no row in its table: an `IndexError`, as it is in a plain `nn.Embedding`."""
