"""The click logs of Criteo and Avazu, preprocessed as by the authors of PEP. Values with a count below 10 are unknown.

Criteo: label, 13 integers and 26 hashed categories; tab-separated, no header, empty values are missing. Integers become
`floor(ln(x)²)` for x > 2, else x − 2. `data_dir` contains `train.txt` (Kaggle 2014) or `day_0 … day_23` (Terabyte log).

Avazu (Kaggle 2014): a CSV with header and 24 columns; `id` is dropped, the other 22 are categories. `data_dir` contains
`train.csv` or `train`.

Files may be compressed; instead of `data_dir`, `paths` may list the files.
"""

import re
from pathlib import Path

from thresher.data.config import DataConfig
from thresher.data.encode.sources import EncodingPlan, register_source
from thresher.data.encode.user_files import FilesSource
from thresher.data.read.raw_files import expand_paths, resolve_format
from thresher.data.schema import Field, FileFormat, Label
from thresher.errors import ConfigError, DataError

INTEGERS = tuple(f"I{at}" for at in range(1, 14))
CATEGORIES = tuple(f"C{at}" for at in range(1, 27))
CRITEO_COLUMNS = ("label", *INTEGERS, *CATEGORIES)
AVAZU_FIELDS = (
    "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category",
    "device_id", "device_ip", "device_model", "device_type", "device_conn_type",
    "C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21",
)  # fmt: skip
MIN_COUNT = 10
_COMPRESSED = ("", ".gz", ".zst")


@register_source("criteo")
def build_criteo_source(config: DataConfig) -> FilesSource:
    min_count = config.min_count or MIN_COUNT
    fields = tuple(Field(name=name, transform="log2", min_count=min_count) for name in INTEGERS)
    fields += tuple(Field(name=name, min_count=min_count) for name in CATEGORIES)
    file_format = FileFormat(delimiter="\t", columns=CRITEO_COLUMNS, quote="")
    plan = EncodingPlan.of(config, fields=fields, label=Label(column="label"), file_format=file_format)
    paths = _find_files(config, ("train.txt", "train.csv", "train.tsv", "day_*"))
    return FilesSource(paths, plan, (None,) * len(paths), file_format, config.block_bytes)


@register_source("avazu")
def build_avazu_source(config: DataConfig) -> FilesSource:
    paths = _find_files(config, ("train.csv", "train"))
    file_format = FileFormat(delimiter=",", quote="")
    plan = EncodingPlan.of(
        config,
        fields=tuple(Field(name=name, min_count=config.min_count or MIN_COUNT) for name in AVAZU_FIELDS),
        label=Label(column="click"),
        file_format=resolve_format(paths[0], file_format),
    )
    return FilesSource(paths, plan, (None,) * len(paths), file_format, config.block_bytes)


def _find_files(config: DataConfig, names: tuple[str, ...]) -> tuple[Path, ...]:
    """The files of a named source: `paths`, or the first of these names that exists in `data_dir`.

    A file that exists both plain and compressed is read once, plain.
    """
    if config.paths:
        return expand_paths(config.paths)
    if config.data_dir is None:
        raise ConfigError(f"{config.source} needs data_dir (a folder with {names[0]}) or paths")
    folder = Path(config.data_dir)
    for name in names:
        found: dict[str, Path] = {}
        for suffix in _COMPRESSED:
            for path in folder.glob(name + suffix):
                if suffix or path.suffix not in _COMPRESSED[1:]:
                    found.setdefault(path.name.removesuffix(suffix), path)
        if found:
            return tuple(found[plain_name] for plain_name in sorted(found, key=_natural_order))
    raise DataError(
        f"contains none of {', '.join(names)}, plain, .gz or .zst; set data.paths to the files", file=folder
    )


def _natural_order(name: str) -> list[tuple[str, int]]:
    """A sort key with `day_2` before `day_10`."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name)]
