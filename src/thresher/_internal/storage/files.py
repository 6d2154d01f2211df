"""Atomic files and folders, exclusive locks, temporary private folders, and JSON files.

A file or folder is written under a temporary name beside its destination, then renamed, so an interrupted write never
damages the destination, and neither does a power failure (`durable`). Its temporary files are removed by the next write
to the same destination.
"""

import glob
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError

from thresher._internal.storage.documents import parse_json, read_bytes, seal, unseal
from thresher._internal.storage.durable import exchange, make_folders, sync_file, sync_folder, sync_tree
from thresher.errors import ThresherError, WriteError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)\.(?P<kind>partial|old)")


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` if the block ends without an error."""
    with _prepared(path) as folder:
        folder.mkdir()  # safetensors leaves files of its own beside its target if the process is killed
        temporary = folder / path.name
        temporary.touch()
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # safetensors creates files that only their owner can read
        sync_file(temporary)
        temporary.replace(path)
        sync_folder(path.parent)


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
        make_folders(path.parent)
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
    """Move a finished folder to `path`; an existing folder there is removed afterwards, or restored on failure.

    Where the system can exchange two folders, a reader finds either the old or the new one at any time.
    """
    try:
        sync_tree(source)
        if path.exists() and exchange(source, path):
            shutil.rmtree(source, ignore_errors=True)  # it now holds the old content
        else:
            if path.exists():  # a folder cannot be renamed over one with content
                path.replace(_temporary_path(path, "old"))
            source.replace(path)
        sync_folder(path.parent)
    finally:
        clean_up_interrupted_writes(path)


def clean_up_interrupted_writes(path: Path) -> None:
    """Remove temporary files of `path` that belong to this or a dead process; restore `path` if it was moved aside."""
    for temporary in sorted(path.parent.glob(f".{glob.escape(path.name)}.*")):
        match = _TEMPORARY.fullmatch(temporary.name)
        if match is None or match["name"] != path.name or is_other_running_process(int(match["pid"])):
            continue
        with suppress(OSError):  # it may belong to another user, which does not prevent writing
            if match["kind"] == "old" and not path.exists():
                temporary.replace(path)
            else:
                remove(temporary)


def clean_up_folder(folder: Path) -> None:
    """Remove all temporary files below a folder that this process has locked; restore what was moved aside."""
    for temporary in sorted(folder.rglob(".*"), key=lambda path: len(path.parts)):
        match = _TEMPORARY.fullmatch(temporary.name)
        if match is None or not temporary.exists():  # removed with its folder
            continue
        with suppress(OSError):
            if match["kind"] == "old" and not (path := temporary.with_name(match["name"])).exists():
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


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON object with a checksum."""
    write_text(path, json.dumps(seal(content), indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of `write_json`; a missing or damaged file is a `FormatError`."""
    return unseal(parse_json(read_bytes(path), path), path)


def _temporary_path(path: Path, kind: Literal["partial", "old"]) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{kind}")


def is_other_running_process(pid: int) -> bool:
    """Whether a process of this number runs and is not this one; on Windows, where one cannot ask, True."""
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


@contextmanager
def private_folder(purpose: str) -> Iterator[Path]:
    """A new folder in the system's temporary directory that only this user can read; it is removed at the end.

    It is named after its process and locked, so that the next process can remove those of killed ones.
    """
    _remove_left(purpose)
    with tempfile.TemporaryDirectory(prefix=f"thresher-{purpose}-{os.getpid()}-") as name, exclusive_lock(Path(name)):
        yield Path(name)


def _remove_left(purpose: str) -> None:
    if os.name != "posix":
        return
    pattern = re.compile(rf"thresher-{purpose}-(?P<pid>\d+)-\w+")
    for folder in Path(tempfile.gettempdir()).glob(f"thresher-{purpose}-*"):
        match = pattern.fullmatch(folder.name)
        if match is None or int(match["pid"]) == os.getpid() or is_other_running_process(int(match["pid"])):
            continue
        with suppress(ThresherError, OSError):
            if not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                with exclusive_lock(folder):
                    shutil.rmtree(folder)
