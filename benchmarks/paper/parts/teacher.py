"""What the dense model is worth as a teacher: by labels, taught, of a taught search; and what more teachers add."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from paper.experiments import (
    HAVE_MORE_TEACHERS,
    MIXED_TEACHERS,
    THREE_TEACHERS,
    more_teachers,
    more_teachers_names,
    more_teachers_points,
    plan_points,
    result_path,
    run_experiment,
)
from paper.page import ABSENT, command, made_from, mean_sd, not_run_yet, table
from paper.settings import MODELS, PLACES, PaperSettings
from paper.stored import read_result
from paper.verdicts import SideBySide, signed
from thresher.training.teaching import teachings

TITLE = "The dense model as a teacher"
PART = "teacher"
FIRST, *FURTHER = map(str, teachings(None, None))
EXPERIMENTS = (
    ("movielens-1m", "fm"),
    *((source, model) for source in ("criteo-small", "avazu-small") for model in MODELS),
)
"""Data set and model; DeepFM and AutoInt on MovieLens-1M are told to have a teacher."""

OF_ONE_KIND = """With `num_teachers = 3` two more dense models are trained, of other seeds, and the mean of all three
teaches"""
OF_THREE_KINDS = """With `teacher_models` dense models of other kinds are trained beside the one pruning is measured
against, here one each of FM, DeepFM and AutoInt, and the mean of all three teaches. FM's run is told to be taught
throughout and trains all at 0.003 instead of 0.001, which by itself is worth no more than 0.0002 to its tickets
([search.md](search.md#what-we-measured))"""


def run(settings: PaperSettings) -> None:
    """Nothing that other parts do not run, too: every run that chooses tells what it chose between."""
    for source, model in EXPERIMENTS:
        if model in settings.models:
            run_experiment(settings, f"{source}/{model}/pep-plan", settings.seeds)
    for name in more_teachers_names(settings.models):
        run_experiment(settings, name, settings.seeds)


def draw(settings: PaperSettings) -> list[Path]:
    return []  # a table alone


def page(settings: PaperSettings) -> str:
    results = {at: read_result(result_path(settings, f"{at[0]}/{at[1]}/pep-plan")) for at in EXPERIMENTS}
    tried = {at: trials for at, content in results.items() if (trials := _trials(content))}
    made = [*(results[at] for at in tried), *_more(settings)]
    if not any(made):
        return not_run_yet(PART)
    heads = ["smallest ticket", "by labels", "taught", "search taught, too", "seeds that chose a teacher"]
    rows = [
        [f"{_place(source)}, {model}", *_row(trials), str(sum(trial["share"] > 0 for trial in trials))]
        for (source, model), trials in tried.items()
    ]
    return "\n\n".join(
        [
            f"""Where `teacher_share` is left open, the smallest ticket is retrained by labels and on the dense model's
predictions, and where those are better, with the ticket of a second search on them, unless `teach_search` says
otherwise ([search.md](search.md#the-dense-model-as-a-teacher)). *Validation* AUC, by which runs choose; beside the
taught ones the difference from labels, paired. Made by {command(PART)}. The paper has no teacher.""",
            table(heads, rows) if rows else not_run_yet(PART),
            _more_teachers(settings, THREE_TEACHERS, OF_ONE_KIND),
            _more_teachers(settings, MIXED_TEACHERS, OF_THREE_KINDS),
            made_from(*made),
        ]
    )


def _more_teachers(settings: PaperSettings, which: str, intro: str) -> str:
    """Three of them against one, at every size."""
    rows, words = [], []
    for model in HAVE_MORE_TEACHERS[which]:
        if several := more_teachers_points(settings, model, which):
            both = SideBySide.of(several, plan_points(settings, model))
            rows += [[f"{model}, {budget}", *cells] for budget, *cells in both.rows]
            words.append(both.in_words(f"With {model} the mean of {which.replace('-', ' ')}"))
    if not rows:
        return f"{which.replace('-', ' ').capitalize()}: {not_run_yet(PART)}"
    return "\n\n".join(
        [
            f"""{intro} (`benchmarks/experiments/{more_teachers("<model>", which)}.toml`). Test AUC on MovieLens-1M,
beside the one teacher of `…/pep-plan.toml`:""",
            table(["parameters", which.replace("-", " "), "one", "difference, paired"], rows),
            " ".join(words),
        ]
    )


def _more(settings: PaperSettings) -> list[dict[str, Any]]:
    return [read_result(result_path(settings, name)) for name in more_teachers_names(MODELS)]


def _trials(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = [seed.get("teacher", {}) for seed in content.get("seeds", {}).values()]
    return [trial for trial in found if FIRST in trial.get("validation_auc", {})]


def _row(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [mean_sd([trial["validation_auc"][FIRST] for trial in trials])]
    for way in FURTHER:
        own = [trial["validation_auc"] for trial in trials if way in trial["validation_auc"]]
        gains = [aucs[way] - aucs[FIRST] for aucs in own]
        cells.append(f"{fmean(aucs[way] for aucs in own):.4f} ({signed(gains)})" if own else ABSENT)
    return cells


def _place(source: str) -> str:
    return PLACES[source.removesuffix("-small")]
