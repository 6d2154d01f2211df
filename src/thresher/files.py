"""Nothing is half-written: files and folders are made beside their place, then renamed into it."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from thresher.errors import FormatError, ThresherError


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; when the block ends well, it takes the place of `path`."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with _told_plainly(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            beside.touch()
            mode = beside.stat().st_mode
            yield beside
            beside.chmod(mode)  # some writers let nobody else read what they write
            with beside.open("rb") as written:
                os.fsync(written.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path`; when the block ends well, it takes the place of `path`."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with _told_plainly(path):
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        try:
            yield beside
            for file in beside.rglob("*"):
                if file.is_file():
                    file.chmod(beside.stat().st_mode & 0o666)
            # a folder cannot be renamed over a full one: the old one steps aside first
            aside = path.with_name(f".{path.name}.{os.getpid()}.old")
            if path.exists():
                path.replace(aside)
            beside.replace(path)
            shutil.rmtree(aside, ignore_errors=True)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    with replacing_file(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_json(path: Path, content: object) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of ours; damage is told with the file's name."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(f"{path} does not exist") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FormatError(f"{path} is damaged ({error}); make it anew") from None
    if not isinstance(content, dict):
        raise FormatError(f"{path} holds no JSON object; make it anew")
    return content


@contextmanager
def _told_plainly(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ThresherError(
            f"cannot write {path}: {error.strerror or error}; free space or choose another folder with --out"
        ) from error
