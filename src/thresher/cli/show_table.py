"""An encoded table as a person looks at it, and its dry run: rows, fields, unknown share, head and tail."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.cli.console import Facts, Shown, bar, shorten, show_facts, show_rows, stdout

if TYPE_CHECKING:
    from thresher.data.summary import FieldPreview, FieldStatistics, Preview, TableStatistics
    from thresher.data.table import EncodedTable

NAME_WIDTH = 18


def look_at_table(folder: Path) -> Shown:
    """An encoded table with its statistics; the rows are read through once."""
    from thresher.data.summary import table_statistics
    from thresher.data.table import EncodedTable
    from thresher.report.field_plots import plot_table

    table = EncodedTable.open(folder)
    statistics = table_statistics(table)
    facts = _describe_statistics(table, statistics)
    return Shown(facts, partial(_display_statistics, table, statistics), partial(plot_table, statistics))


def describe_table(table: "EncodedTable") -> Facts:
    """What an encoding came to, from what is known without reading the ids again."""
    from thresher.data.schema import SPLITS

    schema, counts = table.schema, table.feature_counts
    spans = [counts[start : start + f.size] for f, start in zip(schema.fields, schema.field_offsets, strict=True)]
    facts: Facts = {
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
        facts["dense"] = [column.name for column in schema.dense]
    return facts


def show_encoded(facts: Facts) -> None:
    """What `encode` says at its end."""
    fields = facts["fields"]
    show_facts(_head(facts))
    _show_skipped(facts)
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
    print()  # noqa: T201
    show_rows(_without_empty(rows))


def _head(facts: Facts) -> Facts:
    """What is said before the fields: no empty lists, and once what holds for all fields."""
    counts = {field["min_count"] for field in facts["fields"]}
    told = {key: value for key, value in facts.items() if key not in ("skipped_samples", "fields")}
    if not told["skipped_rows"]:
        del told["skipped_rows"]
    return told | ({"min_count": counts.pop()} if counts != {1} and len(counts) == 1 else {})


def _show_skipped(facts: Facts) -> None:
    """The first of the bad rows that were left out, with their places."""
    if not facts["skipped_rows"]:
        return
    print(f"\nbad rows left out: {facts['skipped_rows']:,}; the first:")  # noqa: T201
    for sample in facts["skipped_samples"][:5]:
        file, line = sample["file"], sample["line"]
        place = ":".join(str(part) for part in (file and Path(file).name, line) if part is not None)
        print(shorten(f"  {place}: {sample['reason']}", max(stdout().width, 80)))  # noqa: T201


def _describe_statistics(table: "EncodedTable", statistics: "TableStatistics") -> Facts:
    """All there is to say about a table, for `--json`."""
    counted = {name: value for name, value in asdict(statistics).items() if name not in ("fields", "num_rows")}
    fields = [
        {**known, **{name: value for name, value in asdict(found).items() if name not in ("name", "num_features")}}
        for known, found in zip(describe_table(table)["fields"], statistics.fields, strict=True)
    ]
    return describe_table(table) | counted | {"fields": fields}


def _display_statistics(table: "EncodedTable", statistics: "TableStatistics") -> None:
    """What `show` says of an encoded table: a line per field, and how often features are seen."""
    facts = describe_table(table)
    show_facts(_head(facts))
    _show_skipped(facts)
    print()  # noqa: T201
    show_rows([_field_row(field) for field in statistics.fields])
    print("< 10: features seen fewer than 10 times; top 5: rows the five most frequent cover")  # noqa: T201
    print("\nfeatures by the training rows they are seen in, the unknown ones aside")  # noqa: T201
    _show_tail(statistics)


def _field_row(field: "FieldStatistics") -> Facts:
    known = max(field.num_features - 1, 1)
    rare = sum(many for _, many in field.tail[:2])  # 0 and 1–9
    return {
        "field": shorten(field.name, NAME_WIDTH),
        "features": field.num_features,
        "unknown": _percent(field.unknown_share["train"]),
        "in test": _percent(field.unknown_share["test"]),
        "< 10": _percent(rare / known),
        "top 5": _percent(field.head_share),
        "most frequent": [_named(value) for value, _ in field.head],
    }


def _show_tail(statistics: "TableStatistics") -> None:
    names = [name for name, _ in statistics.fields[0].tail] if statistics.fields else []
    totals = [sum(field.tail[at][1] for field in statistics.fields) for at in range(len(names))]
    found = [at for at, total in enumerate(totals) if total] or [0]
    for name, total in list(zip(names, totals, strict=True))[found[0] : found[-1] + 1]:
        print(f"{name:>13}  {total:>12,}  {bar(total / max(*totals, 1), 40)}".rstrip())  # noqa: T201


def show_preview(found: "Preview") -> None:
    """What `encode --dry-run` says."""
    from thresher.data.read.column_values import describe_labels

    of = "" if found.rows_estimated is None else f" of about {found.rows_estimated:,}"
    facts: Facts = {
        "first_rows": f"{found.rows_seen:,}{of}",
        "label": found.label,
        "label_values": describe_labels(found.label_values),
        "positive_share": round(found.positive_share, 4),
    }
    if found.bad_labels:
        facts["bad_labels"] = f"{found.bad_labels:,}; say which values mean 1 (--positive), or mend or drop the rows"
    facts |= {f"dense {name}": f"mean {mean:.4g}, deviation {spread:.4g}" for name, mean, spread in found.dense}
    show_facts(facts)
    samples = [{"file": found.file, "line": line, "reason": reason} for line, reason in found.skipped]
    _show_skipped({"skipped_rows": len(samples), "skipped_samples": samples})
    print()  # noqa: T201
    show_rows(_without_empty([_preview_row(field) for field in found.fields]))
    alone = [field.name for field in found.fields if field.distinct == 1 and not field.multi_valued]
    if alone and found.rows_seen > 1:
        print(f"\none value in all these rows, which tells a model nothing: {', '.join(alone)}")  # noqa: T201


def _preview_row(field: "FieldPreview") -> Facts:
    kind = "" if field.transform == "none" else field.transform
    return {
        "field": shorten(field.name, NAME_WIDTH),
        "column": shorten(field.column, NAME_WIDTH) if field.column != field.name else "",
        "becomes": " ".join(filter(None, [kind, "several values" if field.multi_valued else ""])),
        "distinct": field.distinct,
        "missing": _percent(field.missing_share),
        "rare": _percent(field.rare_share),
        "broken": field.broken,
        "examples": [
            _named(raw) if raw == value else f"{_named(raw)} → {value or 'missing'}" for raw, value in field.examples
        ],
    }


def _without_empty(rows: Sequence[Facts]) -> list[Facts]:
    """Rows without the columns that say nothing in any of them."""
    silent = {name for name in rows[0] if all(row[name] in ("", 0, "0 %", 1) for row in rows)}
    return [{name: value for name, value in row.items() if name not in silent} for row in rows]


def _named(value: str) -> str:
    return value or "(empty)"


def _percent(share: float) -> str:
    """A share in a column of others: what is almost nothing is told from nothing, no more."""
    percent = 100 * share
    if 0 < percent < 0.05:
        return "< 0.1 %"
    return f"{percent:.0f} %" if percent >= 9.95 or not percent else f"{percent:.1f} %"
