"""A bundle as a person looks at it: its tables by size, what each field keeps, and how the model did."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from thresher._internal.text import format_bytes, format_share
from thresher.cli.console import Facts, Shown, bar, shorten, show_facts, show_rows

if TYPE_CHECKING:
    from thresher.serving.bundle import Bundle
    from thresher.serving.bundle_summary import BundleSummary

NAME_WIDTH = 20


def look_at_bundle(folder: Path) -> Shown:
    """A bundle's facts, tables and fields."""
    from thresher.report.field_plots import KeptField, plot_kept_fields
    from thresher.serving.bundle import open_bundle
    from thresher.serving.bundle_summary import summarise

    bundle = open_bundle(folder)
    summary = summarise(bundle)
    facts = _facts(bundle)
    fields = [
        KeptField(
            name=field.field,
            num_features=field.num_features,
            num_kept=field.num_kept,
            mean_size=field.mean_size,
            storage_bytes=field.storage_bytes,
        )
        for field in summary.fields_of(_main_table(summary))
    ]
    content = facts | {
        "tables": [asdict(table) for table in summary.tables],
        "fields": [{**asdict(field), "num_dropped": field.num_dropped} for field in summary.fields],
    }
    return Shown(content, partial(_display, facts, summary), partial(plot_kept_fields, fields))


def _facts(bundle: "Bundle") -> Facts:
    from thresher.models.model_registry import model_name

    facts: Facts = {
        "kind": "bundle",
        "folder": str(bundle.folder),
        "model": model_name(bundle.model_config),
        "num_parameters": bundle.num_parameters,
        "storage_bytes": bundle.storage_bytes,
        "bytes_on_disk": sum(file.stat().st_size for file in bundle.folder.rglob("*") if file.is_file()),
    }
    told = {"method" if key == "label" else str(key): value for key, value in bundle.metadata.items()}
    return facts | {key: value for key, value in told.items() if key not in facts and value is not None}


def _main_table(summary: "BundleSummary") -> str:
    """The table people ask about: the embedding, or what a model without one has."""
    names = [table.table for table in summary.tables]
    return "embedding" if "embedding" in names or not names else names[0]


def _display(facts: Facts, summary: "BundleSummary") -> None:
    show_facts({key: round(value, 4) if isinstance(value, float) else value for key, value in facts.items()})
    if summary.tables:
        print()  # noqa: T201
        show_rows(
            [
                {
                    "table": table.table,
                    "shape": f"{table.num_features:,} × {table.embedding_dim}",
                    "entries kept": table.num_parameters,
                    "features kept": table.num_features - table.num_dropped,
                    "features dropped": table.num_dropped,
                    "stored": format_bytes(table.storage_bytes),
                    "of dense": format_share(table.share_of_dense),
                }
                for table in summary.tables
            ]
        )
        for table in summary.tables:
            print(f"  {table.table}: {table.layout}")  # noqa: T201
    fields = summary.fields_of(_main_table(summary))
    if fields:
        print(f"\nwhat {_main_table(summary)} keeps of each field, and the share of features kept")  # noqa: T201
        show_kept(
            [(f.field, f.num_features, f.num_kept, f.num_parameters, f.mean_size, f.storage_bytes) for f in fields]
        )


def show_kept(fields: Sequence[tuple[str, int, int, int, float, int | None]]) -> None:
    """Name, features, kept ones, entries, mean size and bytes of each field, with a bar for the share kept."""
    rows = []
    for name, features, kept, entries, mean_size, stored in fields:
        row: Facts = {
            "field": shorten(name, NAME_WIDTH),
            "features": features,
            "features kept": kept,
            "features dropped": features - kept,
            "entries kept": entries,
            "mean size": round(mean_size, 1),
        }
        rows.append(row | ({} if stored is None else {"stored": format_bytes(stored)}))
        rows[-1][""] = bar(kept / max(features, 1), 10)
    show_rows(rows)
