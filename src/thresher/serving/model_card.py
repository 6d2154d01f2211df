"""The model card of a bundle: `README.md`, so that a bundle can be published as it is. Does not need torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from thresher._internal.text import format_bytes
from thresher.data.schema import Schema

FILE = "README.md"
MAX_FIELDS = 40
METRICS = (
    ("auc", "AUC", 4), ("logloss", "logloss", 4), ("calibration", "calibration", 3), ("rare_auc", "AUC, rare rows", 4),
)  # fmt: skip
LOADING = """\
```python
import thresher

predictor = thresher.load_bundle("path/of/this/folder")
predictor.predict({row})
```
"""


def model_card(
    model: str, schema: Schema, tables: Mapping[str, Sequence[int]], metadata: Mapping[str, Any], version: str
) -> str:
    """The text of the card: sizes, metrics, fields, use and limits.

    Args:
        model: the registered name of the model.
        tables: shape of each table before pruning.
        metadata: of the bundle: method, budget, sizes, metrics and data.
    """
    budget = metadata.get("budget")
    title = f"{model}, pruned to {budget}" if budget else model
    parts = ["---", "library_name: thresher", "pipeline_tag: tabular-classification"]
    parts += ["tags: [recommender, embedding-pruning]", "---", "", f"# {title}", ""]
    parts += [f"Predicts the probability of the label from raw rows. Written by thresher {version}.", ""]
    parts += ["## Size and quality", "", *_sizes(tables, metadata), "", *_metrics(metadata), ""]
    parts += [*_data(metadata), "## Inputs", ""]
    parts += [f"Label: `{_inline(schema.label.column)}`.", "", *_fields(schema), "", "## Load it", ""]
    parts.append(LOADING.format(row="{" + ", ".join(f"{name!r}: …" for name in schema.input_columns[:3]) + ", …}"))
    parts += [
        "## Intended use and limits",
        "",
        "- For rows like those of the training data. All values that training did not see count as one unknown value.",
        "- Probabilities are calibrated on average only as far as the calibration above is near 1.",
        "- Rows with rare features may be predicted worse than the average.",
        "- Vocabularies contain values of the training data. Check for personal data before publishing.",
        "",
    ]
    return "\n".join(parts)


def loaded_bytes(folder: Path) -> int:
    """Bytes of a bundle on disk, without the card: everything that a prediction loads."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != FILE)


def _sizes(tables: Mapping[str, Sequence[int]], metadata: Mapping[str, Any]) -> list[str]:
    lines = []
    if metadata.get("label"):
        seed = f", seed {metadata['seed']}" if "seed" in metadata else ""
        lines.append(f"- Method: `{_inline(str(metadata['label']))}`{seed}")
    if isinstance(metadata.get("num_parameters"), int):
        lines.append(f"- Embedding parameters: {metadata['num_parameters']:,}")
    if isinstance(metadata.get("storage_bytes"), int):
        lines.append(f"- Bytes of the searched tables: {format_bytes(metadata['storage_bytes'])}")
    if metadata.get("value_type"):
        kind = _inline(str(metadata["value_type"]))
        lines.append(f"- Values are stored as {kind}; metrics were measured before rounding.")
    return lines + [
        f"- Table `{_inline(name)}`: {shape[0]:,} × {shape[1]} before pruning" for name, shape in tables.items()
    ]


def _metrics(metadata: Mapping[str, Any]) -> list[str]:
    measured = metadata.get("before_rounding") or metadata
    rows = []
    for key, name, digits in METRICS:
        cells = [measured.get(f"{split}_{key}") for split in ("validation", "test")]
        if any(isinstance(cell, float) for cell in cells):
            rows.append([name, *("–" if not isinstance(cell, float) else f"{cell:.{digits}f}" for cell in cells)])
    if not rows:
        return ["No metrics were recorded."]
    return ["| metric | validation | test |", "| --- | --- | --- |", *(f"| {' | '.join(row)} |" for row in rows)]


def _data(metadata: Mapping[str, Any]) -> list[str]:
    """The rows that the model was trained and measured on, and how they were split."""
    data = metadata.get("data")
    if not isinstance(data, Mapping):
        return []
    rows = data.get("rows")
    counts = rows if isinstance(rows, Mapping) else {}
    known = [f"{count:,} {name}" for name, count in counts.items() if isinstance(count, int) and isinstance(name, str)]
    lines = [f"- Source: {_inline(str(data.get('source', '')))}", f"- Split: {_inline(str(data.get('split', '')))}"]
    return ["## Data", "", *lines, *([f"- Rows: {', '.join(map(_inline, known))}"] if known else []), ""]


def _fields(schema: Schema) -> list[str]:
    rows = [
        f"| `{_inline(field.column)}` | {field.size:,} values, transform {field.transform} |"
        for field in schema.fields[:MAX_FIELDS]
    ]
    rows += [f"| `{_inline(column.column)}` | number |" for column in schema.dense[:MAX_FIELDS]]
    more = max(len(schema.fields) - MAX_FIELDS, 0) + max(len(schema.dense) - MAX_FIELDS, 0)
    end = [f"| {more} more | see `schema.json` |"] if more else []
    return ["| column | used as |", "| --- | --- |", *rows, *end]


def _inline(text: str) -> str:
    """Text for a table cell or inline code: one line, without signs that would end it."""
    return "".join(sign if sign.isprintable() else " " for sign in text).replace("`", "'").replace("|", "¦")
