"""ClassContract: what a class must have to be registered, checked at registration instead of deep in a run."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from inspect import Parameter, Signature, signature
from typing import Any

from thresher.errors import ConfigError


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
