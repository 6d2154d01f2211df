from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from thresher._internal.setting_list import Setting, field_descriptions, list_settings


@dataclass(frozen=True, kw_only=True)
class Shape:
    config_tag: ClassVar[str] = "kind"

    colour: str = "red"
    """Its colour."""

    @classmethod
    def config_variants(cls) -> Mapping[str, type["Shape"]]:
        return {"circle": Circle, "square": Square}


@dataclass(frozen=True, kw_only=True)
class Circle(Shape):
    radius: float = 1.0
    """Half of its width,
    in metres."""


@dataclass(frozen=True, kw_only=True)
class Square(Shape):
    colour: str = "blue"
    side: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Point:
    x: int
    """First coordinate."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Settings of this test."""

    counted: ClassVar[int] = 3
    """Not a setting."""
    shape: Shape = field(default_factory=Circle)
    """What is drawn."""
    points: tuple[Point, ...] = ()
    """Where."""
    start: Point = Point(x=4)
    """The first one."""
    mode: Literal["fill", "line"] | None = None
    """How."""
    others: tuple[Shape, ...] = ()
    sizes: tuple[int, ...] = (1, 2)  # a comment is not a description


def by_key(settings: list[Setting]) -> dict[tuple[str, ...], Setting]:
    return {(setting.key, *setting.variants): setting for setting in settings}


def test_settings_are_listed_with_type_default_and_description():
    found = by_key(list_settings(Drawing))
    mode = found["mode",]
    assert (mode.expects, mode.default, mode.description) == ('one of "fill", "line"', "absent", "How.")
    assert found["sizes",] == Setting(
        key="sizes", expects="an array whose items are an integer", default="[1, 2]", description=""
    )
    assert ("counted",) not in found


def test_tables_and_arrays_of_tables():
    found = by_key(list_settings(Drawing))
    assert found["start",].is_table
    assert (found["start",].table, found["start.x",].table, found["mode",].table) == ("start", "start", "")
    assert found["start",].description == "The first one."
    assert found["start.x",].default == "required"
    assert not found["points",].is_table
    assert found["points[].x",].description == "First coordinate."
    assert found["points[].x",].name == "x"


def test_settings_of_variants_name_the_variants_that_have_them():
    found = by_key(list_settings(Drawing))
    kind = found["shape.kind",]
    assert (kind.expects, kind.default) == ('one of "circle", "square"', '"circle"')
    assert found["shape.radius", "circle"].description == "Half of its width, in metres."
    assert found["shape.colour", "circle"].default == '"red"'
    assert found["shape.colour", "square"].default == '"blue"'  # another default, the inherited description
    assert found["shape.colour", "square"].description == "Its colour."
    assert not [key for key in found if key[0].startswith("others[]")]  # the same as those of shape


def test_a_class_without_source_code_has_no_descriptions():
    namespace: dict[str, object] = {}
    exec("from dataclasses import dataclass\n@dataclass\nclass Typed:\n    x: int = 1\n    '''Text.'''\n", namespace)
    assert field_descriptions(namespace["Typed"]) == {}
