"""A table that was encoded before, as a data source: `encode` takes it over instead of reading raw files again."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from thresher._internal.files import atomic_folder
from thresher.data.config import DataConfig
from thresher.data.encode.sources import EncodingPlan, register_source
from thresher.data.read.raw_files import RawChunk
from thresher.data.table import EncodedTable, read_facts
from thresher.errors import ConfigError, DataError, TableExistsError


@dataclass(frozen=True)
class EncodedSource:
    """An encoded table in a folder of its own."""

    table: EncodedTable

    @property
    def plan(self) -> EncodingPlan:
        schema = self.table.schema
        return EncodingPlan(fields=schema.fields, label=schema.label, dense=schema.dense, weight=schema.weight)

    @property
    def num_bytes(self) -> int | None:
        return None

    def inputs(self) -> Mapping[str, Any]:
        return {"encoded": self.table.fingerprint}

    def chunks(self, position: Mapping[str, int] | None = None) -> Iterator[RawChunk]:
        raise DataError("is encoded already; look at it with: thresher show", file=self.table.folder)

    def take_over(self, folder: Path, *, overwrite: bool = False) -> EncodedTable:
        """The same table in another folder. Files are linked where the file system can, so they take no room twice."""
        facts = read_facts(folder)
        if facts is not None and facts["fingerprint"] == self.table.fingerprint:
            return EncodedTable.open(folder)
        if facts is not None and not overwrite:
            raise TableExistsError(
                f"holds another table than {self.table.folder}. Choose another folder, or overwrite it.",
                file=folder,
            )
        with atomic_folder(folder) as beside:
            shutil.copytree(self.table.folder, beside, copy_function=_link, dirs_exist_ok=True)
        return EncodedTable.open(folder)


@register_source("encoded")
def build_encoded_source(config: DataConfig) -> EncodedSource:
    if len(config.paths) != 1:
        raise ConfigError("the source 'encoded' needs one folder in data.paths, as `encode` made it")
    plain = DataConfig(source=config.source, paths=config.paths, memory_mb=config.memory_mb, synthetic=config.synthetic)
    for setting in fields(DataConfig):
        if getattr(config, setting.name) != getattr(plain, setting.name):
            raise ConfigError(
                f"data.{setting.name} is about encoding, but {config.paths[0]} is encoded already; leave it out, or "
                "encode the raw files again"
            )
    return EncodedSource(EncodedTable.open(config.paths[0]))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, target)
