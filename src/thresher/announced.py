"""What other packages announce by entry point: importing it registers it.

A package that cannot be imported takes nothing else down: it is passed over, and told once it is asked for by name.
"""

from collections.abc import Container, Iterable
from difflib import get_close_matches
from importlib.metadata import entry_points

from thresher.errors import ConfigError

_broken: dict[tuple[str, str], str] = {}
"""Entry-point group and announced name → why it cannot be had."""


def load_announced(group: str, known: Container[str]) -> None:
    """Import what is announced in an entry-point group, but for names that are known."""
    for entry_point in entry_points(group=group):
        if entry_point.name not in known and (group, entry_point.name) not in _broken:
            try:
                entry_point.load()
            except Exception as error:  # anybody's code, run by commands that did not ask for it
                package = entry_point.dist.name if entry_point.dist is not None else "a package"
                _broken[group, entry_point.name] = (
                    f"the package {package!r} announces {entry_point.name!r} as {entry_point.value!r}, which cannot be "
                    f"imported: {type(error).__name__}: {error}"
                )


def why_missing(name: object) -> str:
    """Why an announced name cannot be had, after a semicolon; empty where none is announced."""
    return next((f"; {why}" for (_, announced), why in _broken.items() if announced == name), "")


def unknown_name(what: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that nothing is registered by; `what` it should be the name of."""
    known = list(known)
    nearest = get_close_matches(name, known, n=1)
    hint = why_missing(name) or (f"; did you mean {nearest[0]!r}?" if nearest else ".")
    return ConfigError(f"unknown {what} {name!r}{hint} Known: {', '.join(known)}")
