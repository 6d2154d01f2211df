"""Atomic files and folders, exclusive locks, and JSON files.

A file or folder is written under a temporary name beside its destination, then renamed, so an interrupted write never
damages the destination. Its temporary files are removed by the next write to the same destination.
"""

import glob
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError

from thresher.errors import FormatError, ThresherError, WriteError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)\.(?P<kind>partial|old)")


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` if the block ends without an error."""
    with _prepared(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # safetensors creates files that only their owner can read
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder; it replaces `path` if the block ends without an error."""
    with _prepared(path) as temporary:
        temporary.mkdir()
        yield temporary
        mode = temporary.stat().st_mode & 0o666
        for file in temporary.rglob("*"):
            if file.is_file() and file.stat().st_nlink == 1:  # a hard link shares its mode with the original
                file.chmod(mode)
        replace_folder(temporary, path)


@contextmanager
def _prepared(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the existing parent folder of `path`; remove what is left of it afterwards."""
    with _report_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        clean_up_interrupted_writes(path)
        try:
            yield _temporary_path(path, "partial")
        finally:
            clean_up_interrupted_writes(path)


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Lock `folder` for this process, creating it if needed; raise `ThresherError` if another process holds the lock.

    The lock stays with a renamed folder and ends with the process. On platforms and file systems without locks
    (Windows, some network drives) it does nothing.
    """
    with ExitStack() as held:
        with _report_write_errors(folder):
            while not _lock(folder, held):  # the folder was renamed or removed before it could be locked
                held.close()
        yield


def _lock(folder: Path, held: ExitStack) -> bool:
    """Lock a folder until `held` is closed; False if another folder has taken its path meanwhile."""
    if folder.exists() and not folder.is_dir():
        raise ThresherError(f"{folder} is a file, but a folder is needed. Choose another name.")
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        return True
    descriptor = os.open(folder, os.O_RDONLY)
    held.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ThresherError(f"another process is using {folder}. Wait for it, or choose another folder.") from None
    except OSError:
        return True  # a file system without locks
    held.callback(fcntl.flock, descriptor, fcntl.LOCK_UN)  # forked children would keep the lock after a mere close
    return folder.exists() and os.path.samestat(os.fstat(descriptor), folder.stat())


def replace_folder(source: Path, path: Path) -> None:
    """Move a finished folder to `path`; an existing folder there is removed afterwards, or restored on failure."""
    try:
        if path.exists():  # a folder cannot be renamed over one with content
            path.replace(_temporary_path(path, "old"))
        source.replace(path)
    finally:
        clean_up_interrupted_writes(path)


def clean_up_interrupted_writes(path: Path) -> None:
    """Remove temporary files of `path` that belong to this or a dead process; restore `path` if it was moved aside."""
    for temporary in sorted(path.parent.glob(f".{glob.escape(path.name)}.*")):
        match = _TEMPORARY.fullmatch(temporary.name)
        if match is None or match["name"] != path.name or _is_other_running_process(int(match["pid"])):
            continue
        with suppress(OSError):  # it may belong to another user, which does not prevent writing
            if match["kind"] == "old" and not path.exists():
                temporary.replace(path)
            else:
                remove(temporary)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def is_temporary_path(path: Path) -> bool:
    """Whether the name is one that an atomic write uses temporarily, such as `.config.toml.123.partial`."""
    return _TEMPORARY.fullmatch(path.name) is not None


def write_text(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: object) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; a missing or damaged file is a `FormatError`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FormatError(f"{path} does not exist") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise FormatError(f"{path} is damaged ({error}). Create it again.") from None
    if not isinstance(content, dict):
        raise FormatError(f"{path} is damaged (not a JSON object). Create it again.")
    return content


def _temporary_path(path: Path, kind: Literal["partial", "old"]) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{kind}")


def _is_other_running_process(pid: int) -> bool:
    if pid == os.getpid():
        return False
    if os.name != "posix":
        return True  # on Windows, signal 0 would end the process
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def _report_write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:  # safetensors raises its own error for a full disk
        reason = getattr(error, "strerror", None) or error
        raise WriteError(f"cannot write {path}: {reason}. Free disk space or choose another folder.") from error
