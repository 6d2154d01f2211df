"""predict: raw rows → probabilities, or the best rows of each group; reads files of any size in chunks."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from thresher._internal.registry import import_modules
from thresher._internal.text import list_first
from thresher.cli.console import display, handle_errors
from thresher.cli.options import Imports, option
from thresher.errors import ConfigError, DataError, WriteError
from thresher.report.notes import print_note

if TYPE_CHECKING:
    import polars as pl

    from thresher.data.schema import Schema
    from thresher.data.table import EncodedRows
    from thresher.serving.predictor import Predictor

PROBABILITY = "probability"
JSON_SUFFIXES, PARQUET_SUFFIXES, CSV_SUFFIXES = (".jsonl", ".ndjson"), (".parquet", ".pq"), (".csv", ".txt", "")
SHOWN_FIELDS = 5
REPORTED_SHARE, SUSPICIOUS_SHARE = 0.01, 0.5  # of rows with unknown values
ROWS_HELP = "CSV, TSV, Parquet or JSON lines (.jsonl); - reads JSON lines from stdin."
OUT_HELP = "Output file instead of stdout: .csv, .jsonl or .parquet."
TOP_K_HELP = "Only the K most probable rows, best first, with their row numbers from 0."
SAFE_HELP = "In CSV, put ' before texts that a spreadsheet would run as formulas."
FORMULA, NUMBER = r"^[=+\-@\t\r]", r"^[+\-]?(\d+\.?\d*|\.\d+)([eE][+\-]?\d+)?$"
GROUP_HELP = "With --top-k: the K best rows for each value of this column."


@handle_errors()
def predict(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="Folder of a bundle.")],
    rows: Annotated[str, typer.Argument(metavar="ROWS", help=ROWS_HELP)],
    out: Annotated[Path | None, option("FILE", OUT_HELP, "--out", "-o")] = None,
    keep: Annotated[str | None, option("A,B", "Copy these columns to the output.")] = None,
    top_k: Annotated[int | None, option("K", TOP_K_HELP)] = None,
    group: Annotated[str | None, option("COLUMN", GROUP_HELP)] = None,
    safe_csv: Annotated[bool, option("", SAFE_HELP, "--safe-csv")] = False,
    imports: Imports = None,
    as_json: Annotated[bool, option("", "Print JSON lines instead of CSV.", "--json")] = False,
    quiet: Annotated[bool, option("", "No progress.", "--quiet", "-q")] = False,
) -> None:
    """Predict a probability for each raw row, in order. Values unseen in training are allowed.

    Columns are matched by name; the label is not needed. The file may be larger than memory.
    """
    if group is not None and top_k is None:
        raise ConfigError("--group needs --top-k: the number of rows per group.")
    import_modules(imports or ())
    _check_out(out, rows, as_json=as_json)
    if safe_csv and (as_json or (out is not None and out.suffix.lower() not in CSV_SUFFIXES)):
        raise ConfigError("--safe-csv changes texts of a CSV output only. Leave it out, or write .csv.")
    predictor = _load(bundle)
    kept = list(dict.fromkeys(part.strip() for part in (keep or "").split(",") if part.strip()))
    unknown = _UnknownValues(predictor.schema)
    if top_k is None:
        frames = _predict_all(predictor, rows, kept, unknown)
    else:
        frames = _predict_best(predictor, rows, kept, top_k, group, unknown)
    if safe_csv:
        frames = map(_without_formulas, frames)
    if out is None:
        header = bool(kept) or top_k is not None  # without other columns, only numbers
        for at, frame in enumerate(frames):
            _write_frame(frame, sys.stdout, as_json=as_json, header=header and at == 0)
        sys.stdout.flush()
        if unknown.num_rows == 0 and not quiet:
            print_note("0 rows")
    else:
        with display(quiet=quiet) as progress:
            num_rows = _write_file(frames, out, as_json=as_json, show=progress.encoding)
        print_note(f"{num_rows:,} rows → {out}", fold=False)
    if not quiet and (note := unknown.describe()) is not None:
        print_note(note)


def _check_out(out: Path | None, rows: str, *, as_json: bool) -> None:
    """Raise if the suffix is unknown, or if the output is the input file."""
    from thresher.data.read.raw_files import expand_paths

    known = (*CSV_SUFFIXES, *JSON_SUFFIXES, *PARQUET_SUFFIXES, *([".json"] if as_json else []))
    if out is not None and out.suffix.lower() not in known:
        raise ConfigError(f"--out {out}: unknown suffix {out.suffix}. Use .csv, .jsonl or .parquet.")
    if out is not None and out.exists() and rows != "-" and any(path.samefile(out) for path in expand_paths([rows])):
        raise ConfigError(f"--out {out} is the input file. Choose another name.")


def _load(bundle: Path) -> "Predictor":
    from thresher.serving.predictor import load_bundle

    return load_bundle(bundle)


def _read(predictor: "Predictor", rows: str, also: Sequence[str]) -> Iterator["pl.DataFrame"]:
    from thresher.serving.request_rows import read_frames, read_json_lines

    if rows == "-":
        return read_json_lines(sys.stdin, predictor.schema, also=also)
    return read_frames(rows, predictor.schema, also=also)


def _predict_all(
    predictor: "Predictor", rows: str, keep: Sequence[str], unknown: "_UnknownValues"
) -> Iterator["pl.DataFrame"]:
    import polars as pl

    if PROBABILITY in keep:
        raise ConfigError(f"--keep {PROBABILITY}: this is the name of the output column. Rename the column.")
    for frame in _read(predictor, rows, keep):
        encoded = predictor.encoder.encode_frame(frame)
        unknown.add(encoded)
        yield pl.DataFrame([*(frame[name] for name in keep), pl.Series(PROBABILITY, predictor.predict_rows(encoded))])


def _predict_best(
    predictor: "Predictor", rows: str, keep: Sequence[str], k: int, group: str | None, unknown: "_UnknownValues"
) -> Iterator["pl.DataFrame"]:
    from thresher.serving.ranking import top_k

    also = [*([] if group is None else [group]), *keep]
    yield top_k(predictor, _read(predictor, rows, also), k, group=group, keep=keep, on_chunk=unknown.add)


def _write_file(frames: Iterable["pl.DataFrame"], out: Path, *, as_json: bool, show: Callable[..., None]) -> int:
    from thresher._internal.storage.files import atomic_file

    num_rows = 0

    def counted() -> Iterator["pl.DataFrame"]:
        nonlocal num_rows
        for frame in frames:
            num_rows += len(frame)
            show(num_rows, None, "predicting")
            yield frame

    as_json = as_json or out.suffix.lower() in JSON_SUFFIXES
    with atomic_file(out) as beside:
        if out.suffix.lower() in PARQUET_SUFFIXES:
            _write_parquet(counted(), beside)
            return num_rows
        with beside.open("w", encoding="utf-8") as file:
            for at, frame in enumerate(counted()):
                _write_frame(frame, file, as_json=as_json, header=at == 0)
    return num_rows


def _write_frame(frame: "pl.DataFrame", file: IO[str], *, as_json: bool, header: bool) -> None:
    file.write(frame.write_ndjson() if as_json else _flat(frame).write_csv(include_header=header))


def _flat(frame: "pl.DataFrame") -> "pl.DataFrame":
    """With one text for each list and each date, as CSV needs."""
    import polars as pl

    from thresher.data.read.column_values import temporal_text

    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    flat = frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join("|") for name in lists)
    # dates are written in the form the model reads
    return flat.with_columns(temporal_text(flat[name]) for name, kind in flat.schema.items() if kind.is_temporal())


def _without_formulas(frame: "pl.DataFrame") -> "pl.DataFrame":
    """With ' before texts and names that begin as a formula; numbers stay."""
    import polars as pl

    def quoted(rows: pl.DataFrame) -> pl.DataFrame:
        texts = pl.col(pl.String, pl.Categorical, pl.Enum).cast(pl.String)
        runs = texts.str.contains(FORMULA) & ~texts.str.contains(NUMBER)
        return rows.with_columns(pl.when(runs).then(pl.lit("'") + texts).otherwise(texts).name.keep())

    names = quoted(pl.DataFrame({"name": frame.columns}))["name"]
    return quoted(_flat(frame)).rename(dict(zip(frame.columns, names, strict=True)))


def _write_parquet(frames: Iterator["pl.DataFrame"], path: Path) -> None:
    import polars as pl
    from polars.io.plugins import register_io_source

    first = next(frames, None)
    if first is None:
        pl.DataFrame(schema={PROBABILITY: pl.Float32}).write_parquet(path)
        return
    schema = {name: pl.String() if kind == pl.Null else kind for name, kind in first.schema.items()}

    def parts(*_: object) -> Iterator[pl.DataFrame]:
        for frame in chain([first], frames):
            try:
                yield frame.cast(schema)  # type: ignore[arg-type]
            except pl.exceptions.PolarsError as error:
                raise DataError(f"a column of --keep changes its type: {error}. Write .csv or .jsonl.") from error

    try:
        register_io_source(parts, schema=schema).sink_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise WriteError(f"cannot write the predictions: {error}. Free disk space or choose another file.") from error


class _UnknownValues:
    """Counts the rows with an unknown value in each single-valued field, over all chunks."""

    def __init__(self, schema: "Schema") -> None:
        import numpy as np

        self.schema, self.fields = schema, schema.single_fields
        self._counts = np.zeros(len(self.fields), np.int64)
        self.num_rows = 0

    def add(self, rows: "EncodedRows") -> None:
        from thresher.data.encode.row_encoder import count_unknown

        self._counts += count_unknown(rows.ids, self.schema)
        self.num_rows += len(rows.ids)

    def describe(self) -> str | None:
        """The fields with the largest shares; None if all are small."""
        import numpy as np

        shares = self._counts / max(self.num_rows, 1)
        worst = [at for at in np.argsort(-shares, kind="stable") if shares[at] >= REPORTED_SHARE]
        if not worst:
            return None
        columns = list_first((f"{self.fields[at].column} {shares[at]:.0%}" for at in worst), SHOWN_FIELDS)
        doubt = ". Is this the right file, or is the model out of date?" if shares[worst[0]] >= SUSPICIOUS_SHARE else ""
        return f"Rows with values unknown to the model (new, or too rare in training): {columns}{doubt}"
