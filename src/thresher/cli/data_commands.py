"""encode: raw files → EncodedTable; and how an encoded table is shown."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from thresher._internal.text import shorten
from thresher.cli.console import (
    OPTIONS,
    Details,
    View,
    display,
    handle_errors,
    print_details,
    print_json,
    print_rows,
    share_bar,
    stdout,
)
from thresher.cli.options import EncodeOptions, Force, Json, Quiet, RawSources, SettingsOptions, expand_options, option
from thresher.errors import ConfigError
from thresher.report.notes import print_note

if TYPE_CHECKING:
    from thresher.data.summary import FieldPreview, FieldStatistics, Preview, TableStatistics
    from thresher.data.table import EncodedTable

NAME_WIDTH = 18


@handle_errors(skip_flag="--bad-rows skip")
@expand_options
def encode(
    data: EncodeOptions,
    settings: SettingsOptions,
    sources: RawSources = None,
    out: Annotated[Path | None, option("FOLDER", "Folder of the encoded table.", "--out", "-o")] = None,
    dry_run: Annotated[
        bool, option("", "Show how a sample of the rows would be encoded; write nothing.", "--dry-run")
    ] = False,
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Read raw files once: feature ids, labels, vocabularies and the split, memory-mapped in a folder.

    Memory is bounded for any number of rows. An interrupted encoding starts again.
    prune, search and compare encode by themselves, or take the folder written here.
    """
    from thresher.cli.run_settings import run_config
    from thresher.data.encode.encode import encode as encode_source
    from thresher.data.encode.sources import build_source
    from thresher.data.summary import preview

    config = run_config(sources, data, settings).data
    if out is None and not dry_run:
        raise ConfigError("No output folder. Use --out FOLDER, or --dry-run to only look at the data.")
    source = build_source(config)
    from thresher.report.progress_display import Display

    Display(OPTIONS).columns(source)
    if out is None or dry_run:
        found = preview(source)
        print_json(asdict(found)) if as_json else _print_preview(found)
        print_note("Nothing was written. Encode with --out FOLDER.")
        return
    with display(quiet=quiet) as progress:
        table = encode_source(source, out, overwrite=force, progress=progress.encoding)
    details = _describe_table(table)
    if as_json:
        print_json(details)
        return
    _print_encoded(details)
    print_note(f"\nMore: thresher show {shlex.quote(str(out))}", fold=False)


def view_table(folder: Path) -> View:
    """An encoded table with its statistics; reads all rows."""
    from thresher.data.summary import table_statistics
    from thresher.data.table import EncodedTable
    from thresher.report.fields import plot_table

    table = EncodedTable.open(folder)
    statistics = table_statistics(table)
    details = _describe_statistics(table, statistics)
    return View(details, partial(_print_statistics, table, statistics), partial(plot_table, statistics))


def _describe_table(table: "EncodedTable") -> Details:
    """Sizes and counts that are known without reading the rows."""
    from thresher.data.schema import SPLITS

    schema, counts = table.schema, table.feature_counts
    spans = [counts[start : start + f.size] for f, start in zip(schema.fields, schema.field_offsets, strict=True)]
    details: Details = {
        "kind": "encoded table",
        "folder": str(table.folder),
        "rows": {str(name): int(count) for name, count in table.metadata["rows"].items()},
        "label": schema.label.column,
        "positive_share": {name: round(table.split(name).positive_share, 4) for name in SPLITS},
        "num_features": schema.num_features,
        "skipped_rows": int(table.metadata.get("skipped", 0)),
        "skipped_samples": [
            {"file": file, "line": line, "reason": reason}
            for file, line, reason in table.metadata.get("skipped_samples", ())
        ],
        "fields": [
            {
                "field": f.name,
                "column": f.column,
                "features": f.size,
                "unknown_share": {"train": float(own[0] / max(own.sum(), 1))},
                "transform": f.transform,
                "min_count": f.min_count,
            }
            for f, own in zip(schema.fields, spans, strict=True)
        ],
    }
    if schema.dense:
        details["dense"] = [column.name for column in schema.dense]
    return details


def _print_encoded(details: Details) -> None:
    fields = details["fields"]
    rows = [
        {
            "field": shorten(f["field"], NAME_WIDTH),
            "features": f["features"],
            "unknown": _percent(f["unknown_share"]["train"]),
            "transform": "" if f["transform"] == "none" else f["transform"],
            "min_count": f["min_count"] if len({other["min_count"] for other in fields}) > 1 else "",
            "column": shorten(f["column"], NAME_WIDTH) if f["column"] != f["field"] else "",
        }
        for f in fields
    ]
    _print_table(details, _without_empty(rows))


def _print_table(details: Details, fields: Sequence[Details]) -> None:
    """What is known of a table, then its fields. A `min_count` that all fields share is shown once."""
    counts = {field["min_count"] for field in details["fields"]}
    head = {key: value for key, value in details.items() if key not in ("skipped_samples", "fields")}
    if not head["skipped_rows"]:
        del head["skipped_rows"]
    print_details(head | ({"min_count": counts.pop()} if counts != {1} and len(counts) == 1 else {}))
    _print_skipped(details)
    print()
    print_rows(fields)


def _print_skipped(details: Details) -> None:
    """The first bad rows that were left out, with file and line."""
    if not details["skipped_rows"]:
        return
    print(f"\nbad rows left out: {details['skipped_rows']:,}; the first:")
    for sample in details["skipped_samples"][:5]:
        file, line = sample["file"], sample["line"]
        place = ":".join(str(part) for part in (file and Path(file).name, line) if part is not None)
        print(shorten(f"  {place}: {sample['reason']}", max(stdout().width, 80)))


def _describe_statistics(table: "EncodedTable", statistics: "TableStatistics") -> Details:
    details, counted = _describe_table(table), asdict(statistics)
    del counted["num_rows"]
    for known, found in zip(details["fields"], counted.pop("fields"), strict=True):
        known |= {name: value for name, value in found.items() if name not in ("name", "num_features")}
    return details | counted


def _print_statistics(table: "EncodedTable", statistics: "TableStatistics") -> None:
    """The output of `show`: one line per field, and feature frequencies."""
    _print_table(_describe_table(table), [_field_row(field) for field in statistics.fields])
    print("< 10: features seen fewer than 10 times; top 5: rows with the five most frequent features")
    print("\nfeatures by their number of training rows, without the unknown features")
    names = [name for name, _ in statistics.fields[0].tail] if statistics.fields else []
    totals = [sum(field.tail[at][1] for field in statistics.fields) for at in range(len(names))]
    found = [at for at, total in enumerate(totals) if total] or [0]
    print_rows(
        [
            {"training rows": f"{name:>13}", "features": totals[at], "": share_bar(totals[at] / max(*totals, 1), 40)}
            for at, name in enumerate(names)
            if found[0] <= at <= found[-1]
        ]
    )


def _field_row(field: "FieldStatistics") -> Details:
    known = max(field.num_features - 1, 1)
    rare = sum(many for _, many in field.tail[:2])  # 0 and 1–9
    return {
        "field": shorten(field.name, NAME_WIDTH),
        "features": field.num_features,
        "unknown": _percent(field.unknown_share["train"]),
        "in test": _percent(field.unknown_share["test"]),
        "< 10": _percent(rare / known),
        "top 5": _percent(field.head_share),
        "most frequent": ", ".join(shorten(_named(value), 24) for value, _ in field.head),
    }


def _print_preview(found: "Preview") -> None:
    from thresher.data.encode.row_warnings import LARGE_SHARE, warn_about_unknowns
    from thresher.data.read.column_values import describe_labels

    of = "" if found.rows_estimated is None else f" of about {found.rows_estimated:,}"
    details: Details = {
        **({"rows": found.rows_seen} if found.complete else {"sampled_rows": f"{found.rows_seen:,}{of}"}),
        "label": found.label,
        "label_values": describe_labels(found.label_values),
        "positive_share": round(found.positive_share, 4),
    }
    if found.bad_labels:
        details["bad_labels"] = f"{found.bad_labels:,}; set --positive to the values that mean 1, or fix the rows"
    details |= {f"dense {name}": f"mean {mean:.4g}, standard deviation {std:.4g}" for name, mean, std in found.dense}
    print_details(details)
    samples = [{"file": found.file, "line": line, "reason": reason} for line, reason in found.skipped]
    _print_skipped({"skipped_rows": len(samples), "skipped_samples": samples})
    print()
    print_rows(_without_empty([_preview_row(field) for field in found.fields]))
    shares = {field.name: field.unknown_share for field in found.fields if field.unknown_share is not None}
    if large := {name: share for name, share in shares.items() if share >= LARGE_SHARE}:
        print_note(warn_about_unknowns(large))
    constant = [field.name for field in found.fields if field.distinct == 1 and not field.multi_valued]
    if constant and found.rows_seen > 1:
        print(f"\nconstant in these rows, so without information: {', '.join(constant)}")


def _preview_row(field: "FieldPreview") -> Details:
    kind = "" if field.transform == "none" else field.transform
    return {
        "field": shorten(field.name, NAME_WIDTH),
        "column": shorten(field.column, NAME_WIDTH) if field.column != field.name else "",
        "becomes": " ".join(filter(None, [kind, "several values" if field.multi_valued else ""])),
        "distinct": field.distinct,
        "missing": _percent(field.missing_share),
        "rare": _percent(field.rare_share),
        "broken": field.broken,
        "examples": ", ".join(
            shorten(_named(raw) if raw == value else f"{_named(raw)} → {value or 'missing'}", 24)
            for raw, value in field.examples
        ),
    }


def _without_empty(rows: Sequence[Details]) -> list[Details]:
    """Rows without the columns that are empty or trivial in all of them."""
    empty = {name for name in rows[0] if all(row[name] in ("", 0, "0 %", 1) for row in rows)}
    return [{name: value for name, value in row.items() if name not in empty} for row in rows]


def _named(value: str) -> str:
    return value or "(empty)"


def _percent(share: float) -> str:
    """A share as a percentage of fixed precision; shares above 0 never become `0 %`."""
    percent = 100 * share
    if 0 < percent < 0.05:
        return "< 0.1 %"
    return f"{percent:.0f} %" if percent >= 9.95 or not percent else f"{percent:.1f} %"
