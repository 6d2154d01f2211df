"""Report pages: one self-contained HTML file for a run or a comparison. jinja2 is imported when a page is written."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from thresher._internal.storage.files import atomic_file
from thresher._internal.text import format_bytes, format_share

if TYPE_CHECKING:
    from jinja2 import Environment

PAGE = "index.html"
ABSENT = "–"
PARTS = {
    "style": "style.css",
    "d3": "vendor/d3.min.js",
    "plot": "vendor/plot.min.js",
    "common": "common.js",
    "run": "run.js",
    "compare": "compare.js",
}
"""Files that are copied into a page, by their name in the templates."""


def write_page(
    path: Path, kind: Literal["run", "compare"], content: Mapping[str, Any], data: Mapping[str, Any]
) -> Path:
    """Write a page atomically.

    Args:
        content: the values of the template `<kind>.html`: text and tables.
        data: what the charts show; plain data, stored in the page as JSON.
    """
    html = _environment().get_template(f"{kind}.html").render(**content, data=_embedded_json(data), files=_parts())
    with atomic_file(path) as beside:
        beside.write_text(html, encoding="utf-8")
    return path


def _embedded_json(data: Mapping[str, Any]) -> Any:
    """JSON that cannot end its script element: names in the data may contain any text."""
    from markupsafe import Markup

    text = json.dumps(_without_nan(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


def _without_nan(value: Any) -> Any:
    """NaN and infinity become null: JSON has no such numbers."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, Mapping):
        return {str(key): _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, FunctionLoader

    environment = Environment(loader=FunctionLoader(_read), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["bytes"] = lambda value: ABSENT if value is None else format_bytes(value)
    environment.filters["share"] = lambda value: ABSENT if value is None else format_share(value)
    return environment


@cache
def _parts() -> dict[str, Any]:
    from markupsafe import Markup

    return {name: Markup(_read(file)) for name, file in PARTS.items()}


def _read(name: str) -> str:
    return files("thresher.report").joinpath("page_files", name).read_text(encoding="utf-8")
