"""Criteo display advertising: label, 13 integers, 26 hashed categories; tabs, no header, empty is missing.

As the authors of PEP take it: integers by the rule of the Criteo winners (`floor(ln(x)²)` for x > 2, else x − 2), a
missing value its own category, values seen fewer than 10 times unknown. `data_dir` holds `train.txt` (Kaggle 2014) or
`day_0 … day_23` (the Terabyte log, the same 40 columns); or name the files themselves in `paths`. Packed files will do.
"""

import re
from pathlib import Path

from thresher.data.config import DataConfig
from thresher.data.encode.own_files import FilesSource
from thresher.data.encode.sources import EncodingPlan, register_source
from thresher.data.read.raw_files import expand_paths
from thresher.data.schema import Field, FileFormat, Label
from thresher.errors import ConfigError, DataError

INTEGERS = tuple(f"I{at}" for at in range(1, 14))
CATEGORIES = tuple(f"C{at}" for at in range(1, 27))
COLUMNS = ("label", *INTEGERS, *CATEGORIES)
MIN_COUNT = 10
_PACKED = ("", ".gz", ".zst")


@register_source("criteo")
def build_criteo_source(config: DataConfig) -> FilesSource:
    min_count = config.min_count or MIN_COUNT
    fields = tuple(Field(name=name, transform="log2", min_count=min_count) for name in INTEGERS)
    fields += tuple(Field(name=name, min_count=min_count) for name in CATEGORIES)
    told = FileFormat(delimiter="\t", columns=COLUMNS, quote="")
    plan = EncodingPlan.of(config, fields=fields, label=Label(column="label"), file_format=told)
    paths = named_paths(config, ("train.txt", "train.csv", "train.tsv", "day_*"))
    return FilesSource(paths, plan, (None,) * len(paths), told, config.block_bytes)


def named_paths(config: DataConfig, names: tuple[str, ...]) -> tuple[Path, ...]:
    """The files of a named source: as said in `paths`, or the first of these names that `data_dir` holds.

    A file that lies there plain and packed is read once, plain; numbers in names count as numbers.
    """
    if config.paths:
        return expand_paths(config.paths)
    if config.data_dir is None:
        raise ConfigError(f"{config.source} needs data_dir (a folder with {names[0]}) or paths")
    folder = Path(config.data_dir)
    for name in names:
        one_packing: dict[str, Path] = {}
        for path in sorted((path for packed in _PACKED for path in folder.glob(name + packed)), key=_packing):
            one_packing.setdefault(_unpacked_name(path), path)
        if one_packing:
            return tuple(one_packing[unpacked] for unpacked in sorted(one_packing, key=_numbers_as_numbers))
    raise DataError(
        f"holds none of {', '.join(names)} (.gz and .zst are fine, too); name the files in paths", file=folder
    )


def _packing(path: Path) -> int:
    return _PACKED.index(path.suffix) if path.suffix in _PACKED else 0


def _unpacked_name(path: Path) -> str:
    return path.name.removesuffix(_PACKED[_packing(path)])


def _numbers_as_numbers(name: str) -> list[tuple[str, int]]:
    """A sorting key in which `day_2` comes before `day_10`."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]
