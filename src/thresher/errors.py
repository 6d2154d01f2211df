"""The exceptions Thresher raises. Each message states what is wrong, where, what was expected and what to do.

Messages name settings, never command-line flags: the command line prints every `ThresherError` as one message, adds a
hint about its flags by error class, and exits with code 2. Any other exception is a bug.
"""

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Self


class ThresherError(Exception):
    """Base class of all errors that a user can cause and fix."""


class ConfigError(ThresherError):
    """A setting is unknown, has the wrong type, or is out of range."""


class NotRegisteredError(ConfigError):
    """A model, method, search or data source of this name is not registered."""


class UserCodeError(NotRegisteredError):
    """A module that should register models, methods or data sources cannot be imported."""


class SettingsConflictError(ConfigError):
    """Two settings contradict each other."""


class FolderError(ConfigError):
    """An output folder cannot be used for the run, comparison or export."""


class RunExistsError(FolderError):
    """The output folder already holds a run, and neither resuming nor replacing it was requested."""


class RunNotFoundError(ConfigError):
    """A folder holds no run."""


class BudgetError(ThresherError):
    """A budget cannot be parsed, or the model cannot meet it; `budget` names it if it is one of several."""

    def __init__(self, message: str, *, budget: str | None = None) -> None:
        super().__init__(message)
        self.budget = budget


class TimeLimitReached(ThresherError):  # noqa: N818 – an event rather than an error
    """`should_stop` ended a training; its checkpoint holds the last completed step."""


class ProcessLostError(ThresherError):
    """Another process of a distributed training ended; the run can be resumed from its last checkpoint."""


class NonFiniteError(ThresherError):
    """A weight, a threshold or a gradient is NaN or infinite, so that training cannot continue."""


class FormatError(ThresherError):
    """A file written by Thresher is damaged, incomplete, or of a version that this release cannot read."""


class WriteError(ThresherError):
    """A file could not be written."""


class ForkedProcessError(ThresherError):
    """A process made by `fork` lacks threads that it needs; it would wait for ever."""


class AttachError(ThresherError):
    """A model has no table that can be pruned, or has one that must not be changed."""


class MissingExtraError(ThresherError):
    """An optional package is missing; the message names the extra that installs it."""


class DataError(ThresherError):
    """A raw file, or a row in it, does not match the schema.

    The text starts with the place, in the form that editors understand: `file:line: column 'name': message`. `row`
    counts rows in memory from 0. `settings` are values that fix the error, by the name of the setting.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        row: int | None = None,
        column: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        place = "" if file is None else f"{file}:{line}: " if line is not None else f"{file}: "
        super().__init__(f"{place}{f'column {column!r}: ' if column is not None else ''}{message}")
        self.message, self.settings = message, settings or {}
        self.file, self.line, self.row, self.column = file, line, row, column


class LabelError(DataError):
    """The label column is unknown, or its values cannot be read as 0 and 1."""


class FileFormatError(DataError):
    """A raw file needs another delimiter, quote character or text encoding."""


class WrongValueError(DataError):
    """A value is not a number or a date, as the transform of its column expects."""


class TableExistsError(DataError):
    """The output folder already holds an encoded table of other data or settings."""


class IdTypeError(DataError, TypeError):
    """Feature ids are not integers. Rounding them silently would train and read the wrong rows."""


class OutsideTableError(DataError, IndexError):
    """An id has no row in its table; an `IndexError`, as for a plain `nn.Embedding`."""

    @classmethod
    def of(cls, id_: int, num_features: int) -> Self:
        return cls(
            f"id {id_} is outside a table of {num_features} rows. Add rows for new ids first; models built from a "
            "schema expect global ids (field offset + local id), as its encoder returns them."
        )


def warn_user(message: str) -> None:
    """Issue a warning at the line of the first caller outside this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("thresher."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
