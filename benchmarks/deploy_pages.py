"""Write the measured tables of the pages on deployment from the result files.

python benchmarks/deploy_pages.py
"""

import re
from pathlib import Path
from typing import Any

from generated_sections import fill
from thresher._internal.storage.files import read_json
from thresher._internal.text import format_bytes

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PEP_0, ONE_PERCENT = "1067", "695558"
PARTS = {
    "keys of features": ("vocabularies.safetensors",),
    "first-order weights": ("tables/linear_term.weights.safetensors",),
    "pruned table": ("tables/embedding.safetensors",),
    "schema, settings, network": ("schema.json", "bundle.json", "manifest.json", "network.safetensors", "README.md"),
    "whole bundle": ("total",),
}
COLUMNS = {
    "single row, p50 / p99": ("single_row_p50_ms", "single_row_p99_ms"),
    "64 rows, p50 / p99": ("batch_of_64_p50_ms", "batch_of_64_p99_ms"),
}


def sections() -> dict[str, dict[str, str]]:
    """Page → the text of each generated section. The server's figures are left out until they are measured."""
    pages = {"bundle_size": {"bundle-parts": bundle_parts()}, "exports": {"rows-only": rows_only()}}
    if (HERE / "results" / "serving.json").exists():
        pages["http"] = {"serving": serving(read_json(HERE / "results" / "serving.json"))}
    return pages


def bundle_parts() -> str:
    """Bytes of each part, with all first-order weights and with few."""
    kept = read_json(HERE / "results" / "bundle_parts.json")["kept"]
    bundles = [parts for size in (PEP_0, ONE_PERCENT) for name, parts in kept[size].items() if name != "table"]
    lines = [
        "| | 1,067 entries: all weights | 10,000 int8 | 695,558 entries: all weights | 10,000 int8 |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for part, files in PARTS.items():
        cells = " | ".join(format_bytes(sum(parts[file] for file in files)) for parts in bundles)
        lines.append(f"| {part} | {cells} |")
    return "\n".join(lines)


def rows_only() -> str:
    """Bytes of the table in each form."""
    kept = read_json(HERE / "results" / "bundle_parts.json")["kept"]
    lines = ["| form | 1,067 entries | 695,558 entries |", "| --- | ---: | ---: |"]
    for form in kept[PEP_0]["table"]:
        cells = " | ".join(format_bytes(kept[size]["table"][form]) for size in (PEP_0, ONE_PERCENT))
        lines.append(f"| {form} | {cells} |")
    return "\n".join(lines)


def serving(result: dict[str, Any]) -> str:
    """Latency, rows per second, memory and start, ours beside the service of today."""
    lines = [
        f"| milliseconds | {' | '.join(COLUMNS)} | rows per second | memory | start |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, side in result["sides"].items():
        times = " | ".join(f"{side[first]:.2f} / {side[last]:.2f}" for first, last in COLUMNS.values())
        memory = f"{side['memory_megabytes']:.0f} MB" if "memory_megabytes" in side else ""
        start = f"{side['start_seconds']:.1f} s" if "start_seconds" in side else ""
        name = re.sub(r"\b1 workers$", "1 worker", name)
        lines.append(f"| {name} | {times} | {side['rows_per_second']:,} | {memory} | {start} |")
    return "\n".join(lines)


def main() -> None:
    for name, texts in sections().items():
        page = DOCS / f"{name}.md"
        page.write_text(fill(page.read_text(encoding="utf-8"), texts), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
