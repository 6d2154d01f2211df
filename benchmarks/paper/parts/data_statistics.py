"""The data sets: rows, fields and features as the paper counts them and as they are here. Counts only, never rows."""

from dataclasses import asdict
from pathlib import Path

from made_with import made_with
from paper.page import command, made_from, not_run_yet, picture, table
from paper.settings import PLACES, PaperSettings
from paper.stored import read_result, stored_result, write_result
from paper.verdicts import auc_standard_error
from thresher.config import config_to_mapping
from thresher.data.encode import encode
from thresher.data.sources import build_source
from thresher.data.statistics import table_statistics
from thresher.report.figures import COLOURS, new_figure, page_style, save_figure, set_count_ticks

TITLE = "Statistics of the data sets"
PAPER = {"movielens-1m": (739_015, 7, 3_864), "criteo": (45_840_617, 39, 1_086_810), "avazu": (40_400_000, 22, 645_394)}
"""Rows, fields, features."""


def run(settings: PaperSettings) -> None:
    for source in PLACES:
        path, data = result_path(settings, source), settings.told_data(source)
        if stored_result(settings, path, data):
            continue
        made = made_with()
        encoded = encode(build_source(settings.data(source)), settings.temporary / "data_statistics" / source)
        found = table_statistics(encoded, head=0)  # the most frequent values are data, and stay out
        fields = [
            {"name": field.name, "num_features": field.num_features, "unknown_share": field.unknown_share}
            for field in found.fields
        ]
        content = {key: value for key, value in asdict(found).items() if key != "fields"}
        write_result(path, {"config": config_to_mapping(data), "source": source, **content, "fields": fields}, made)


def draw(settings: PaperSettings) -> list[Path]:
    found = {source: content for source in PLACES if (content := read_result(result_path(settings, source)))}
    if not found:
        return []
    with page_style():
        figure = new_figure(4.6, 3.0)
        axes = figure.subplots()
        for at, (source, content) in enumerate(found.items()):
            curve = [(rank, count) for rank, count in content["frequency_curve"] if count > 0]
            axes.plot(*zip(*curve, strict=True), color=COLOURS[at], linewidth=1.5, label=PLACES[source])
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            set_count_ticks(axis)
        axes.set_xlabel("features, the most frequent first")
        axes.set_ylabel("training rows with it")
        axes.legend(loc="lower left", fontsize=8)
        return list(save_figure(figure, settings.images / "data-statistics"))


def page(settings: PaperSettings) -> str:
    found = {source: content for source in PLACES if (content := read_result(result_path(settings, source)))}
    if not found:
        return not_run_yet("data_statistics")
    rows = []
    for source, content in found.items():
        splits = [content["num_rows"][name] for name in ("train", "validation", "test")]
        paper_rows, paper_fields, paper_features = PAPER[source]
        rows.append(
            [
                PLACES[source],
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
            f"Command: {command('data_statistics')}. Features here include an unknown one per field, and are "
            "those of the training split, where the paper counts the whole file. Values seen fewer "
            "than ten times are unknown on Criteo and Avazu, as in the paper.",
            table(heads, rows),
            picture(settings, "data-statistics", "how often features are seen"),
            made_from(*found.values()),
        ]
    )


def auc_error(settings: PaperSettings, source: str, auc: float) -> float | None:
    """The standard error of such an AUC on a data set's test split that comes from its rows."""
    content = read_result(result_path(settings, source))
    if not content:
        return None
    rows, positive = content["num_rows"]["test"], content["positive_share"]["test"]
    return auc_standard_error(auc, round(rows * positive), round(rows * (1 - positive)))


def result_path(settings: PaperSettings, source: str) -> Path:
    return settings.results / "data_statistics" / f"{source}.json"
