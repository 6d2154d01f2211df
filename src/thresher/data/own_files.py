"""One's own files as a data source: CSV, TSV or Parquet, with the fields that were named or guessed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from thresher.data.fingerprint import files_facts
from thresher.data.guess import Guess, guess_fields
from thresher.data.raw_files import RawChunk, expand_paths, is_parquet, read_chunks, resolve_format
from thresher.data.row_encoder import unknown_column
from thresher.data.schema import FileFormat, Label
from thresher.data.sources import DataConfig, EncodingPlan, FieldPlan, register_source
from thresher.errors import DataError


@dataclass(frozen=True)
class FilesSource:
    """Rows of one or several files with the same columns."""

    paths: tuple[Path, ...]
    plan: EncodingPlan
    header: bool = True
    guess: Guess | None = None
    """What was guessed, when something was."""

    @property
    def num_bytes(self) -> int | None:
        return sum(path.stat().st_size for path in self.paths)

    def inputs(self) -> Mapping[str, Any]:
        return {"files": files_facts(self.paths)}

    def chunks(self) -> Iterator[RawChunk]:
        expected = self.plan.file_format.columns
        for path in self.paths:
            file_format = replace(self.plan.file_format, columns=() if self.header else expected)
            resolved = resolve_format(path, file_format)
            for name in expected:
                if name not in resolved.columns:
                    raise DataError(f"{unknown_column(name, resolved.columns)} (the first file has it)", file=path)
            yield from read_chunks(path, resolved, header=self.header)


@register_source("files")
def build_files_source(config: DataConfig) -> FilesSource:
    """Settings → source. Reads the first rows when fields or label are to be guessed."""
    paths = expand_paths(config.paths)
    file_format = resolve_format(paths[0], config.file_format)
    fields, guess = config.fields, None
    label = config.label
    if not fields or label is None:
        guess = guess_fields(paths[0], file_format, config)
        fields, label = fields or guess.fields, label or guess.label
    for name in [label, *(field.column or field.name for field in fields), *config.drop]:
        if name not in file_format.columns:
            raise DataError(unknown_column(name, file_format.columns), file=paths[0])
    default = config.min_count or 1
    plan = EncodingPlan(
        fields=tuple(
            FieldPlan(
                name=field.name,
                column=field.column or field.name,
                transform=field.transform,
                shift=field.shift,
                min_count=field.min_count or default,
            )
            for field in fields
        ),
        label=Label(column=label, positive=config.positive),
        file_format=FileFormat() if is_parquet(paths[0]) else file_format,
        split_seed=config.split_seed,
        vocabulary_from=config.vocabulary_from,
    )
    return FilesSource(paths, plan, header=not config.columns, guess=guess)
