"""What the dense model is worth as a teacher: by labels, taught, of a taught search; and what two more teachers add."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from paper.experiments import (
    HAVE_THREE_TEACHERS,
    plan_points,
    result_path,
    run_experiment,
    three_teachers,
    three_teachers_points,
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


def run(settings: PaperSettings) -> None:
    """Nothing that other parts do not run, too: every run that chooses tells what it chose between."""
    for source, model in EXPERIMENTS:
        if model in settings.models:
            run_experiment(settings, f"{source}/{model}/pep-plan", settings.seeds)
    for model in (model for model in HAVE_THREE_TEACHERS if model in settings.models):
        run_experiment(settings, three_teachers(model), settings.seeds)


def draw(settings: PaperSettings) -> list[Path]:
    return []  # a table alone


def page(settings: PaperSettings) -> str:
    results = {at: read_result(result_path(settings, f"{at[0]}/{at[1]}/pep-plan")) for at in EXPERIMENTS}
    tried = {at: trials for at, content in results.items() if (trials := _trials(content))}
    made = [*(results[at] for at in tried), *_three(settings)]
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
            _more_teachers(settings),
            made_from(*made),
        ]
    )


def _more_teachers(settings: PaperSettings) -> str:
    """Three against one, at every size."""
    rows, words = [], []
    for model in HAVE_THREE_TEACHERS:
        if three := three_teachers_points(settings, model):
            both = SideBySide.of(three, plan_points(settings, model))
            rows += [[f"{model}, {budget}", *cells] for budget, *cells in both.rows]
            words.append(both.in_words(f"With {model} the mean of three"))
    if not rows:
        return f"Three teachers: {not_run_yet(PART)}"
    return "\n\n".join(
        [
            f"""With `num_teachers = 3` two more dense models are trained, of other seeds, and the mean of all three
teaches (`benchmarks/experiments/{three_teachers("<model>")}.toml`). Test AUC on MovieLens-1M, beside the one teacher of
`…/pep-plan.toml`:""",
            table(["parameters", "three teachers", "one", "difference, paired"], rows),
            " ".join(words),
        ]
    )


def _three(settings: PaperSettings) -> list[dict[str, Any]]:
    return [read_result(result_path(settings, three_teachers(model))) for model in HAVE_THREE_TEACHERS]


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
