"""Registry: names → methods, models or data sources, open to other packages.

Thresher's own modules are listed by name and imported at first use. Other packages declare theirs in an entry-point
group; one that cannot be imported is skipped, and the error for its name gives the reason.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from thresher.errors import ConfigError, NotRegisteredError

EntryT = TypeVar("EntryT")
_failed: dict[tuple[str, str], str] = {}  # (entry-point group, name) → why the import failed


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
