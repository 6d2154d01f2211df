"""Registry: names → methods, models or data sources, open to other packages.

Thresher's own modules are listed by name and imported at first use. Other packages declare theirs in an entry-point
group; one that cannot be imported is skipped, and the error for its name gives the reason. Modules of users are
imported only if a command, a settings file or a `RunConfig` names them: bundles, tickets and encoded tables name no
modules, so that files from elsewhere cannot run code.
"""

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter, Signature, signature
from typing import Any, Generic, TypeVar

from thresher.errors import ConfigError, NotRegisteredError, ThresherError, UserCodeError

EntryT = TypeVar("EntryT")
_failed: dict[tuple[str, str], str] = {}  # (entry-point group, name) → why the import failed
PACKAGE = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120 - compared with file names in tracebacks


class Registry(Generic[EntryT]):
    """Entries of one kind (`what`, for messages) by name, from Thresher's `modules` and an entry-point `group`."""

    def __init__(self, what: str, modules: Sequence[str], *, group: str | None = None) -> None:
        self.what, self.modules, self.group = what, modules, group
        self._entries: dict[str, EntryT] = {}

    def add(self, name: str, entry: EntryT) -> None:
        """Register an entry; raise if the name is taken by another class or function.

        The same class defined again replaces the first, as when a cell of a notebook is run twice.
        """
        known = _definition(self._entries.get(name, entry))
        if known != _definition(entry):
            raise ConfigError(f"{self.what} {name!r} is already registered by {known}. Choose another name.")
        self._entries[name] = entry

    def registered(self) -> Mapping[str, EntryT]:
        """The entries registered so far; imports nothing."""
        return self._entries

    def entries(self) -> Mapping[str, EntryT]:
        """Every entry, sorted by name."""
        for module in self.modules:
            import_module(module)
        if self.group is not None:
            _load_entry_points(self.group, self._entries)
        return dict(sorted(self._entries.items()))

    def find(self, name: str) -> EntryT:
        """The entry of a name; an unknown name is an error that suggests the nearest."""
        known = self.entries()
        if name not in known:
            hint = why_missing(name) or did_you_mean(name, known) or "."
            raise NotRegisteredError(f"unknown {self.what} {name!r}{hint} Known: {', '.join(known)}")
        return known[name]


def _definition(entry: Any) -> str:
    """Module and name of the class or function that an entry registers."""
    registered = getattr(entry, "registered_class", entry)
    return f"{registered.__module__}.{registered.__qualname__}"


@cache  # scanning the installed packages takes milliseconds, and a run asks thousands of times
def _entry_points(group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _load_entry_points(group: str, known: Mapping[str, object]) -> None:
    for entry_point in _entry_points(group):
        if entry_point.name not in known and (group, entry_point.name) not in _failed:
            try:
                entry_point.load()
            except Exception as error:  # code of another package, imported by commands that did not ask for it
                package = entry_point.dist.name if entry_point.dist is not None else "unknown"
                _failed[group, entry_point.name] = (
                    f"package {package!r} declares {entry_point.name!r} as {entry_point.value!r}, which cannot be "
                    f"imported: {type(error).__name__}: {error}"
                )


def why_missing(name: object) -> str:
    """Why an entry point of this name could not be imported, after a semicolon; empty if there is none."""
    return next((f"; {why}" for (_, declared), why in _failed.items() if declared == name), "")


def did_you_mean(name: object, known: Iterable[str], prefix: str = "") -> str:
    """A suggestion of the nearest known name, after a semicolon; empty if none is near."""
    nearest = get_close_matches(str(name), list(known), n=1)
    return f"; did you mean {prefix + nearest[0]!r}?" if nearest else ""


@dataclass(frozen=True, kw_only=True)
class ClassContract:
    """What a class must have to be registered with a config: base classes, and the arguments of its methods.

    Attributes:
        arguments: by name of the method, a function that takes the required arguments without `self`.
    """

    what: str
    base: type
    config_base: type
    arguments: Mapping[str, Callable[..., object]]

    def missing(self, cls: Any, config: Any) -> list[str]:
        """What a class and its config lack, one phrase each."""
        found = []
        if not (isinstance(cls, type) and issubclass(cls, self.base)):
            found.append(f"it is not a subclass of thresher.{self.base.__name__}")
        for method, template in self.arguments.items():
            wanted, given = signature(template), _own_signature(cls, method)
            if given is None:
                found.append(f"it has no {method}{wanted}")
            elif not _accepts(given, wanted):
                found.append(f"{method} takes {given} instead of {wanted}")
        if not (isinstance(config, type) and issubclass(config, self.config_base)):
            name = getattr(config, "__qualname__", repr(config))
            return [*found, f"its config {name} is not a subclass of thresher.{self.config_base.__name__}"]
        if vars(config).get("__annotations__") and "__dataclass_fields__" not in vars(config):
            found.append(f"{config.__qualname__} is not decorated with @dataclass(frozen=True, kw_only=True)")
        own_fields: tuple[Field[Any], ...] = fields(config)  # type: ignore[arg-type]
        required = [f.name for f in own_fields if f.default is f.default_factory is MISSING]
        if required:
            found.append(f"{config.__qualname__} has no default for {', '.join(required)}")
        return found

    def check(self, name: str, cls: Any, config: Any, others: Mapping[str, Any]) -> None:
        """Raise if anything is missing, or if one of `others` (name → registered) has the same config class."""
        found = self.missing(cls, config)
        found += [
            f"its config {config.__qualname__} belongs to {self.what} {other!r}, and each needs its own"
            for other, registered in others.items()
            if other != name and registered.config is config
        ]
        if found:
            place = f"{getattr(cls, '__module__', '?')}.{getattr(cls, '__qualname__', cls)}"
            raise ConfigError(
                f"{self.what} {name!r} cannot be registered ({place}): {'; '.join(found)}. See docs/custom_code.md."
            )


def _own_signature(cls: Any, method: str) -> Signature | None:
    """The arguments of a method without `self` and annotations; None if neither the class nor a base of it has it."""
    function = getattr(cls, method, None)
    name = getattr(function, "__qualname__", "")
    if function is None or getattr(function, "__isabstractmethod__", False) or name.startswith("_forward_unimpl"):
        return None
    parameters = list(signature(function).parameters.values())[1:]
    return Signature([parameter.replace(annotation=Parameter.empty) for parameter in parameters])


def _accepts(given: Signature, wanted: Signature) -> bool:
    names = wanted.parameters.values()
    try:
        given.bind(
            *[each.name for each in names if each.kind is not Parameter.KEYWORD_ONLY],
            **{each.name: None for each in names if each.kind is Parameter.KEYWORD_ONLY},
        )
    except TypeError:
        return False
    return True


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
