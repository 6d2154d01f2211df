"""The progress display of a command; its notes name options of the command line."""

from contextlib import AbstractContextManager

from thresher.report.guess_notes import SettingNames
from thresher.report.progress_display import Display, progress_display

OPTIONS = SettingNames(label="--label", columns="--label, --fields, --drop", positive="--positive")


def display(*, quiet: bool = False) -> AbstractContextManager[Display]:
    """The progress display of a command: a bar, lines or none."""
    return progress_display(quiet=quiet, names=OPTIONS)
