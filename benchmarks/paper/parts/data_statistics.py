"""The data sets: rows, fields and features in the paper and here, and the raw files.

Result files contain counts and checksums, never rows.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from environment import run_environment
from paper.markdown import NOT_RUN_YET, Claim, paragraphs, picture, provenance, table
from paper.result_files import read_matching_result, read_result, write_result
from paper.settings import DATASET_NAMES, FOLDERS, PaperSettings
from thresher._internal.settings import config_to_mapping
from thresher._internal.storage.folder_manifest import file_sha256
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.data.summary import table_statistics
from thresher.report.figures import COLOURS, DASHES, new_figure, page_style, save_figure, set_count_ticks
from thresher.training.metrics import auc_standard_error

TITLE = "Statistics of the data sets"
PUBLISHED = "Table 3"
MEASURED = """Rows, fields and features of the data sets. Features here are those of the training split plus one unknown
feature per field; the paper counts the full file. On Criteo and Avazu, values seen fewer than ten times are unknown, as
in the paper. The points below ten in their curves are the unknown features of single fields."""
PAPER = {"movielens-1m": (739_015, 7, 3_864), "criteo": (45_840_617, 39, 1_086_810), "avazu": (40_400_000, 22, 645_394)}
"""Rows, fields, features."""
FILES = {"movielens-1m": ("ratings.dat", "users.dat", "movies.dat"), "criteo": ("train.txt",), "avazu": ("train.csv",)}
"""Data set → raw files in its folder."""
WITH_HEADER = ("train.csv",)


def run(settings: PaperSettings) -> None:
    for source in DATASET_NAMES:
        path, data = result_path(settings, source), settings.portable_data(source)
        if read_matching_result(settings, path, data):
            continue
        environment = run_environment()
        encoded = encode(build_source(settings.data(source)), settings.temporary / "data_statistics" / source)
        found = table_statistics(encoded, head=0)  # no values of the data in result files
        fields = [
            {"name": field.name, "num_features": field.num_features, "unknown_share": field.unknown_share}
            for field in found.fields
        ]
        content = {key: value for key, value in asdict(found).items() if key != "fields"}
        metadata = {"config": config_to_mapping(data), "source": source, "files": file_metadata(settings, source)}
        write_result(path, {**metadata, **content, "fields": fields}, environment)


def file_metadata(settings: PaperSettings, source: str) -> list[dict[str, Any]]:
    """Return name, rows and checksum of a data set's raw files; empty for synthetic rows."""
    folder = settings.data(source).data_dir
    return [] if folder is None else [_metadata(Path(folder) / name, FOLDERS[source]) for name in FILES[source]]


def _metadata(path: Path, folder: str) -> dict[str, Any]:
    with path.open("rb") as lines:
        num_lines = sum(1 for _ in lines)
    rows = num_lines - (path.name in WITH_HEADER)
    return {"file": f"{folder}/{path.name}", "rows": rows, "sha256": file_sha256(path)}


def draw(settings: PaperSettings) -> list[Path]:
    found = {source: content for source in DATASET_NAMES if (content := read_result(result_path(settings, source)))}
    if not found:
        return []
    with page_style():
        figure = new_figure(4.6, 3.0)
        axes = figure.subplots()
        for at, (source, content) in enumerate(found.items()):
            curve = zip(*content["frequency_curve"], strict=True)
            axes.plot(*curve, color=COLOURS[at], linestyle=DASHES[at], linewidth=1.5, label=DATASET_NAMES[source])
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            set_count_ticks(axis)
        axes.set_xlabel("rank of the feature by frequency")
        axes.set_ylabel("training rows with the feature")
        axes.legend(loc="lower left", fontsize=8)
        return list(save_figure(figure, settings.images / "data-statistics"))


def claims(settings: PaperSettings) -> list[Claim]:
    return []


def page(settings: PaperSettings) -> str:
    found = {source: content for source in DATASET_NAMES if (content := read_result(result_path(settings, source)))}
    if not found:
        return NOT_RUN_YET
    rows = []
    for source, content in found.items():
        splits = [content["num_rows"][name] for name in ("train", "validation", "test")]
        paper_rows, paper_fields, paper_features = PAPER[source]
        rows.append(
            [
                DATASET_NAMES[source],
                f"{paper_rows:,}",
                f"{sum(splits):,}",
                " / ".join(f"{rows:,}" for rows in splits),
                f"{paper_fields} / {len(content['fields'])}",
                f"{paper_features:,}",
                f"{content['num_features']:,}",
                f"{content['positive_share']['train']:.4f}",
            ]
        )
    heads = ["", "rows, paper", "rows, here", "train / validation / test", "fields, paper / here", "features, paper",
             "features, here", "positive share"]  # fmt: skip
    return paragraphs(
        table(heads, rows),
        picture(settings, "data-statistics", "frequency of the features"),
        _files(found),
        provenance(*found.values()),
    )


def _files(found: Mapping[str, Mapping[str, Any]]) -> str:
    """List the raw files behind the results."""
    rows = [
        [f"`{file['file']}`", f"{file['rows']:,}", f"`{file['sha256']}`"]
        for content in found.values()
        for file in content.get("files", [])
    ]
    text = (
        "All results on this page use these files, except for the times of a step at Criteo's shape, which use "
        "synthetic rows. MovieLens-1M is complete, as published by GroupLens. According to its source, the Criteo file "
        "is a roughly uniform sample of 0.3 % of the rows of the Kaggle 2014 `train.txt`, and the Avazu file has "
        "20,000 rows over all 240 hours of the Kaggle 2014 `train.csv`. Rows are counted without the header; the "
        "checksum covers the whole file."
    )
    return f"{text}\n\n{table(['file', 'rows', 'SHA-256'], rows)}" if rows else ""


def auc_error(settings: PaperSettings, source: str, auc: float) -> float | None:
    """Return the standard error of an AUC on a data set's test split due to its rows; None without statistics."""
    content = read_result(result_path(settings, source))
    if not content:
        return None
    rows, positive = content["num_rows"]["test"], content["positive_share"]["test"]
    return auc_standard_error(auc, round(rows * positive), round(rows * (1 - positive)))


def result_path(settings: PaperSettings, source: str) -> Path:
    return settings.results / "data_statistics" / f"{source}.json"
