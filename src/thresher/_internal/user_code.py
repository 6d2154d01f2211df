"""Import modules of users that register models, methods, searches or data sources.

Modules are imported only if a command, a settings file or a `RunConfig` names them. Bundles, tickets and encoded tables
name no modules, so that files from elsewhere cannot run code.
"""

import os
import sys
import traceback
from collections.abc import Iterable
from importlib import import_module

from thresher.errors import ThresherError, UserCodeError

PACKAGE = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - compared with file names in tracebacks


def import_modules(names: Iterable[str]) -> None:
    """Import modules by name; the current folder is searched after all other places."""
    folder = os.getcwd()  # noqa: PTH109 - sys.path holds strings
    for name in names:
        if name.endswith(".py") or not all(part.isidentifier() for part in name.split(".")):
            raise UserCodeError(f"{name!r} is not the name of a module. Write my_module for the file my_module.py.")
        if folder not in sys.path:
            sys.path.append(folder)
        try:
            import_module(name)
        except Exception as error:  # the code of a user may raise anything
            if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
                raise UserCodeError(
                    f"there is no module {name!r} in the current folder ({folder}) or on the Python path. Change to "
                    "the folder that contains it, or add that folder to PYTHONPATH."
                ) from None
            raise UserCodeError(_describe_failure(name, error)) from error


def _describe_failure(name: str, error: Exception) -> str:
    """What a module raised, and at which line of the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not frame.filename.startswith((PACKAGE, "<frozen"))]
    place = f" ({outside[-1].filename}:{outside[-1].lineno})" if outside else ""
    kind = "" if isinstance(error, ThresherError) else f"{type(error).__name__}: "
    return f"module {name!r} cannot be imported{place}. {kind}{error}"
