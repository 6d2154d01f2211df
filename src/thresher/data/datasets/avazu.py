"""Avazu click-through rate (Kaggle 2014): a CSV with header and 24 columns; `id` is dropped, 22 fields remain.

As the authors of PEP take it: every column a category as it stands, values seen fewer than 10 times unknown.
`data_dir` holds `train.csv` (or `train`, or packed); or name the files themselves in `paths`.
"""

from thresher.data.config import DataConfig
from thresher.data.datasets.criteo import MIN_COUNT, named_paths
from thresher.data.encode.own_files import FilesSource
from thresher.data.encode.sources import EncodingPlan, register_source
from thresher.data.read.raw_files import resolve_format
from thresher.data.schema import Field, FileFormat, Label

FIELDS = (
    "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category",
    "device_id", "device_ip", "device_model", "device_type", "device_conn_type",
    "C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21",
)  # fmt: skip


@register_source("avazu")
def build_avazu_source(config: DataConfig) -> FilesSource:
    paths = named_paths(config, ("train.csv", "train"))
    told = FileFormat(delimiter=",", quote="")
    plan = EncodingPlan.of(
        config,
        fields=tuple(Field(name=name, min_count=config.min_count or MIN_COUNT) for name in FIELDS),
        label=Label(column="click"),
        file_format=resolve_format(paths[0], told),
    )
    return FilesSource(paths, plan, (None,) * len(paths), told, config.block_bytes)
