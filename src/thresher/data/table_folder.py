"""The files of an encoded table by their names, finished or on its way: nothing else may be lost with its folder."""

import re
from pathlib import Path

from thresher._internal.files import is_temporary_path
from thresher._internal.text import list_first
from thresher.errors import DataError

_SPLIT = r"(train|validation|test)/"
_OWN = re.compile(
    r"(table|schema|journal)\.json|feature_counts\.npy|(vocabularies|values)/\d+\.parquet"
    rf"|{_SPLIT}(ids|labels|dense|weights|bag_\d+_(offsets|values))\.npy|{_SPLIT}\w+\.part"
)


def foreign_files(folder: Path) -> list[str]:
    """What encoding has not written, by its place in the folder."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(
        path.as_posix()
        for path in found
        if _OWN.fullmatch(path.as_posix()) is None and not any(is_temporary_path(Path(part)) for part in path.parts)
    )


def check_replaceable(folder: Path) -> None:
    """Raise if something would be lost with this folder that is no part of an encoded table."""
    if folder.is_dir() and (others := foreign_files(folder)):
        raise DataError(
            f"holds more than an encoded table: {list_first(others)}; move that elsewhere before the folder is "
            "replaced, or choose another one",
            file=folder,
        )
