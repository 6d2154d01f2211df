"""Nothing is half-written: files and folders are made beside their place, by one process, then renamed into it.

What a killed process left beside a place is put in order when something is next written there.
"""

import glob
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError

from thresher.errors import FormatError, ThresherError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LEFTOVER = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)\.(?P<kind>partial|old)")
SHOWN_NAMES = 5


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; when the block ends well, it takes the place of `path`."""
    beside = _beside(path, "partial")
    with _told_plainly(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        clean_up_interrupted_writes(path)
        try:
            beside.touch()
            mode = beside.stat().st_mode
            yield beside
            beside.chmod(mode)  # some writers let nobody else read what they write
            with beside.open("rb") as written:
                os.fsync(written.fileno())
            beside.replace(path)
        finally:
            clean_up_interrupted_writes(path)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder beside `path`; when the block ends well, it takes the place of `path`."""
    beside = _beside(path, "partial")
    with _told_plainly(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        clean_up_interrupted_writes(path)
        beside.mkdir()
        try:
            yield beside
            mode = beside.stat().st_mode & 0o666
            for file in beside.rglob("*"):
                if file.is_file() and file.stat().st_nlink == 1:  # the mode of a link is that of the original, too
                    file.chmod(mode)
            replace_folder(beside, path)
        finally:
            clean_up_interrupted_writes(path)


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Inside, this process works in `folder`, made where it is missing; while another does, `ThresherError`.

    The lock is on the folder itself, follows it when it is renamed, and ends with the process, and those it forked,
    however they end. Where there are no such locks (Windows, some network drives) nobody is kept out.
    """
    with ExitStack() as held:
        with _told_plainly(folder):
            while not _lock(folder, held):  # it took its final place, or was removed, before it could be locked
                held.close()
        yield


def _lock(folder: Path, held: ExitStack) -> bool:
    """Lock a folder until `held` is closed; False if it is no longer what is in its place."""
    if folder.exists() and not folder.is_dir():
        raise ThresherError(f"{folder} is a file, where a folder is to be; choose another name")
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        return True
    opened = os.open(folder, os.O_RDONLY)
    held.callback(os.close, opened)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ThresherError(
            f"another process is at work in {folder}; wait until it has ended, or choose another folder"
        ) from None
    except OSError:
        return True  # a file system without locks
    held.callback(fcntl.flock, opened, fcntl.LOCK_UN)  # closing alone would leave it to forked children
    return folder.exists() and os.path.samestat(os.fstat(opened), folder.stat())


def replace_folder(made: Path, path: Path) -> None:
    """Give a finished folder its place; what was there is removed once that is done, and put back if it fails."""
    try:
        # a folder cannot be renamed over a full one: the old one steps aside first
        if path.exists():
            path.replace(_beside(path, "old"))
        made.replace(path)
    finally:
        clean_up_interrupted_writes(path)


def clean_up_interrupted_writes(path: Path) -> None:
    """Put back a folder that was moved aside for nothing; remove what else this or a killed process left of `path`."""
    for left in sorted(path.parent.glob(f".{glob.escape(path.name)}.*")):
        found = _LEFTOVER.fullmatch(left.name)
        if found is None or found["name"] != path.name or _is_another_alive(int(found["pid"])):
            continue
        with suppress(OSError):  # of another user, perhaps: no reason not to write
            if found["kind"] == "old" and not path.exists():
                left.replace(path)
            else:
                remove(left)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def first_names(names: Sequence[str]) -> str:
    """The first few names, and how many more there are.

    >>> first_names("abcdefg")
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return ", ".join(names[:SHOWN_NAMES]) + more


def is_temporary_path(path: Path) -> bool:
    """Whether this is something half-written, or moved aside, beside its place.

    >>> is_temporary_path(Path(".config.toml.123.partial")), is_temporary_path(Path("config.toml"))
    (True, False)
    """
    return _LEFTOVER.fullmatch(path.name) is not None


def write_text(path: Path, text: str) -> None:
    with atomic_file(path) as beside:
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


def _beside(path: Path, kind: Literal["partial", "old"]) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{kind}")


def _is_another_alive(pid: int) -> bool:
    """Whether this is another process than ours, and it lives."""
    if pid == os.getpid():
        return False
    if os.name != "posix":
        return True  # there is no asking there: signal 0 would end it
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def _told_plainly(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:  # safetensors has an error of its own for a full disk
        reason = getattr(error, "strerror", None) or error
        raise ThresherError(f"cannot write {path}: {reason}; free space or choose another folder with --out") from error
