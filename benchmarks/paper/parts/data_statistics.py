"""The data sets: rows, fields and features as the paper counts them and as they are here, and which files those are.

Counts and checksums only, never rows.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from environment import run_environment
from paper.markdown import NOT_RUN_YET, Claim, picture, provenance, table
from paper.result_files import read_matching_result, read_result, write_result
from paper.settings import DATASET_NAMES, FOLDERS, PaperSettings
from thresher._internal.settings import config_to_mapping
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.data.statistics import table_statistics
from thresher.report.figures import COLOURS, DASHES, new_figure, page_style, save_figure, set_count_ticks
from thresher.serving.manifest import file_sha256
from thresher.training.metrics import auc_standard_error

TITLE = "Statistics of the data sets"
PUBLISHED = "Table 3"
PAPER = {"movielens-1m": (739_015, 7, 3_864), "criteo": (45_840_617, 39, 1_086_810), "avazu": (40_400_000, 22, 645_394)}
"""Rows, fields, features."""
FILES = {"movielens-1m": ("ratings.dat", "users.dat", "movies.dat"), "criteo": ("train.txt",), "avazu": ("train.csv",)}
"""Data set → the raw files it is read from, in its folder."""
WITH_HEADER = ("train.csv",)


def run(settings: PaperSettings) -> None:
    for source in DATASET_NAMES:
        path, data = result_path(settings, source), settings.portable_data(source)
        if read_matching_result(settings, path, data):
            continue
        made = run_environment()
        encoded = encode(build_source(settings.data(source)), settings.temporary / "data_statistics" / source)
        found = table_statistics(encoded, head=0)  # the most frequent values are data, and stay out
        fields = [
            {"name": field.name, "num_features": field.num_features, "unknown_share": field.unknown_share}
            for field in found.fields
        ]
        content = {key: value for key, value in asdict(found).items() if key != "fields"}
        told = {"config": config_to_mapping(data), "source": source, "files": file_metadata(settings, source)}
        write_result(path, {**told, **content, "fields": fields}, made)


def file_metadata(settings: PaperSettings, source: str) -> list[dict[str, Any]]:
    """Name, rows and checksum of the raw files of a data set; none of made-up rows."""
    folder = settings.data(source).data_dir
    return [] if folder is None else [_facts(Path(folder) / name, FOLDERS[source]) for name in FILES[source]]


def _facts(path: Path, folder: str) -> dict[str, Any]:
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
        axes.set_xlabel("features, the most frequent first")
        axes.set_ylabel("training rows with it")
        axes.legend(loc="lower left", fontsize=8)
        return list(save_figure(figure, settings.images / "data-statistics"))


def claims(settings: PaperSettings) -> list[Claim]:
    return []  # the statistics claim nothing


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
    return "\n\n".join(
        [
            "Features here include an unknown one per field, and are "
            "those of the training split, where the paper counts the whole file. Values seen fewer "
            "than ten times are unknown on Criteo and Avazu, as in the paper: what lies below ten in their curves are "
            "the unknown features of single fields.",
            table(heads, rows),
            picture(settings, "data-statistics", "how often features are seen"),
            *filter(None, [_files(found)]),
            provenance(*found.values()),
        ]
    )


def _files(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Which files the results are of."""
    rows = [
        [f"`{file['file']}`", f"{file['rows']:,}", f"`{file['sha256']}`"]
        for content in found.values()
        for file in content.get("files", [])
    ]
    told = (
        "All results on this page but the times of a step at Criteo's shape, which has made-up rows, are of these "
        "files. MovieLens-1M is complete, as GroupLens publishes it; of the others whoever cut them out says: Criteo's "
        "is a roughly uniform 0.3 % of the rows of the Kaggle 2014 `train.txt`, Avazu's 20,000 rows over all 240 hours "
        "of the Kaggle 2014 `train.csv`. Rows are counted without a header; the checksum is that of the whole file."
    )
    return f"{told}\n\n{table(['file', 'rows', 'SHA-256'], rows)}" if rows else ""


def auc_error(settings: PaperSettings, source: str, auc: float) -> float | None:
    """The standard error of such an AUC on a data set's test split that comes from its rows."""
    content = read_result(result_path(settings, source))
    if not content:
        return None
    rows, positive = content["num_rows"]["test"], content["positive_share"]["test"]
    return auc_standard_error(auc, round(rows * positive), round(rows * (1 - positive)))


def result_path(settings: PaperSettings, source: str) -> Path:
    return settings.results / "data_statistics" / f"{source}.json"
