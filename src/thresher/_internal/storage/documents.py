"""JSON and TOML from files that may be damaged or hostile: limits before parsing, and a checksum in our own JSON.

Every JSON object that Thresher writes carries a `checksum` of its other keys, so that a damaged file is found even
where it stands alone. Files without one, from earlier releases, are accepted.
"""

import hashlib
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from thresher.errors import FormatError, ThresherError

MAX_BYTES = 16 << 20
MAX_VALUES = 400_000
MAX_DEPTH = 64
MAX_DIGITS = 40
MAX_NAME_BYTES = 200
CHECKSUM = "checksum"
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
_LONG_NUMBER = re.compile(rb"[0-9_]{%d}" % (MAX_DIGITS + 1))


@contextmanager
def damaged_file(what: str, remedy: str) -> Iterator[None]:
    """Turn whatever goes wrong in reading a stored file into a `FormatError`; the libraries below raise many types."""
    try:
        yield
    except ThresherError:
        raise
    except Exception as error:
        raise FormatError(f"{what} is damaged ({_short(error)}). {remedy}") from error
    except BaseException as error:  # polars panics on some damaged Parquet files
        if type(error).__name__ != "PanicException":
            raise
        raise FormatError(f"{what} is damaged ({_short(error)}). {remedy}") from None


def read_bytes(path: Path) -> bytes:
    """The content of a regular file of limited size; anything else is a `FormatError`."""
    try:
        # without O_NONBLOCK, opening a named pipe would wait for a writer
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FormatError(f"{path} is not a regular file. Copy or create it again.")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise FormatError(f"{path} is too large: more than {MAX_BYTES:,} bytes. Create it again.")
    return content


def check_regular(path: Path) -> None:
    """Raise `FormatError` unless the path is a regular file or a link to one: pipes and devices are never read."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(f"file {path} does not exist.") from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if not stat.S_ISREG(mode):
        raise FormatError(f"{path} is not a regular file. Copy or create it again.")


def parse_json(content: bytes, path: str | Path) -> dict[str, Any]:
    """A JSON object; `path` is for the error message."""
    _check_size(content, path)
    try:
        value = json.loads(content.decode("utf-8"), parse_int=_parse_int, parse_float=_parse_float)
    except (ValueError, RecursionError) as error:  # also UnicodeDecodeError and JSONDecodeError
        raise FormatError(f"{path} is damaged ({_reason(error)}). Create it again.") from None
    if not isinstance(value, dict):
        raise FormatError(f"{path} is damaged (not a JSON object). Create it again.")
    _check_nesting(value, path)
    return value


def parse_toml(content: bytes, path: str | Path) -> dict[str, Any]:
    """A TOML document; the caller reports `TOMLDecodeError` with its line."""
    _check_size(content, path)
    if _LONG_NUMBER.search(content) and re.search(rb"=\s*[-+\[]*[0-9_]{%d}" % (MAX_DIGITS + 1), content):
        raise FormatError(f"{path} has a number of more than {MAX_DIGITS} digits. Shorten it.")
    try:
        value = tomllib.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise FormatError(f"{path} cannot be read as a UTF-8 text file ({_reason(error)}). Save it as UTF-8.") from None
    except RecursionError:
        raise FormatError(f"{path} is nested more than {MAX_DEPTH} levels deep.") from None
    _check_nesting(value, path)
    return value


def seal(content: dict[str, Any]) -> dict[str, Any]:
    """The same object with a checksum of its keys and values."""
    plain = json.loads(json.dumps({key: value for key, value in content.items() if key != CHECKSUM}))
    return {**plain, CHECKSUM: _digest(plain)}


def unseal(content: dict[str, Any], path: str | Path, *, required: bool = False) -> dict[str, Any]:
    """The object without its checksum; raises if the checksum is wrong, or missing although `required`."""
    plain = dict(content)
    found = plain.pop(CHECKSUM, None)
    if found is None and not required and not any(_is_checksum(value) for value in plain.values()):
        return plain
    if found != _digest(plain):
        raise FormatError(f"{path} is damaged: its checksum does not match its content. Restore or create it again.")
    return plain


def _is_checksum(value: object) -> bool:
    """Whether a value is a checksum, whose key must be damaged if it has another name."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def check_name(name: object, path: str | Path) -> str:
    """A name read from a file that becomes part of a path: bounded, one line of printable text."""
    if not isinstance(name, str) or not name or not name.isprintable() or len(name.encode()) > MAX_NAME_BYTES:
        raise FormatError(f"{path} is damaged: {str(name)[:40]!r} is not a valid name. Create it again.")
    return name


def _digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _check_size(content: bytes, path: str | Path) -> None:
    """Limit the number of values before they are built: an empty list takes three bytes of text and 64 of memory."""
    if sum(map(content.count, (b",", b"[", b"{"))) > MAX_VALUES or len(content) > MAX_BYTES:
        raise FormatError(f"{path} is too large: more than {MAX_VALUES:,} values. Create it again.")


def _check_nesting(value: Any, path: str | Path) -> None:
    level, depth = [value], 0
    while level:
        if depth > MAX_DEPTH:
            raise FormatError(f"{path} is nested more than {MAX_DEPTH} levels deep.")
        following: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                following += [*item.values(), *item]
            elif isinstance(item, list):
                following += item
            elif isinstance(item, str) and not item.isascii():
                _check_text(item, path)
        level, depth = following, depth + 1


def _check_text(text: str, path: str | Path) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which no file or column can be named
        raise FormatError(f"{path} is damaged: {text[:40]!r} is not valid text. Create it again.") from None


def _parse_int(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(f"a number of {len(text):,} digits")
    return int(text)


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {text[:20]} is out of range")
    return value


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:300]}…"


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
