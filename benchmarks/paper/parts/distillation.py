"""What the dense model is worth as a teacher: by labels, taught, of a taught search; and what more teachers add."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from paper.experiments import (
    MIXED_TEACHERS,
    TEACHER_EXPERIMENTS,
    THREE_TEACHERS,
    digest,
    load_experiment,
    plan_points,
    result_path,
    run_experiment,
    teacher_experiment,
    teacher_experiment_names,
    teacher_experiment_points,
)
from paper.markdown import ABSENT, NOT_RUN_YET, Claim, mean_sd, provenance, table
from paper.result_files import compute_missing_seeds, read_result
from paper.settings import DATASET_NAMES, MODEL_NAMES, MODELS, PaperSettings
from paper.verdicts.differences import PairedComparison, differences_by_seed, signed
from thresher.cli.progress import display
from thresher.embeddings.uniform import UniformConfig
from thresher.experiment.dense import train_dense
from thresher.experiment.fresh import new_model
from thresher.experiment.retrain import train_model
from thresher.experiment.runs import Run, RunConfig
from thresher.experiment.stages import batches, encode_data
from thresher.training.distillation import candidate_plans

TITLE = "The dense model as a teacher"
PUBLISHED = ""
PART = "teacher"
FIRST, *FURTHER = map(str, candidate_plans(None, None))
EXPERIMENTS = (
    ("movielens-1m", "fm"),
    *((source, model) for source in ("criteo-small", "avazu-small") for model in MODELS),
)
"""Data set and model; DeepFM and AutoInt on MovieLens-1M are told to have a teacher."""

OF_ONE_KIND = """With `num_teachers = 3` two more dense models are trained, of other seeds, and the mean of all three
teaches"""
OF_THREE_KINDS = """With `teacher_models` dense models of other kinds are trained beside the one pruning is measured
against, here one each of FM, DeepFM and AutoInt, and the mean of all three teaches. FM's run is told to be taught
throughout and trains all at 0.003 instead of 0.001; [by labels](#what-the-defaults-rest-on) tickets are level with
that, and the dense model is a little better"""


def run(settings: PaperSettings) -> None:
    """What other parts run, too, since every run tells what it chose between; and a dense model that is taught."""
    for source, model in EXPERIMENTS:
        if model in settings.models:
            run_experiment(settings, f"{source}/{model}/pep-plan", settings.seeds)
    for name in teacher_experiment_names(settings.models):
        run_experiment(settings, name, settings.seeds)
    if "fm" in settings.models:
        config = load_experiment(settings, teacher_experiment("fm", MIXED_TEACHERS))
        compute_missing_seeds(
            settings, _taught_dense_path(settings), config, lambda seed: taught_dense(settings, config, seed)
        )


def taught_dense(settings: PaperSettings, config: RunConfig, seed: int) -> dict[str, Any]:
    """The dense model taught as tickets are: what of their gain is owed to the teachers."""
    config = replace(config, data=settings.data("movielens-1m"), seed=seed)
    with display() as progress, Run.started(settings.temporary / PART / digest(config), config, resume=True) as run:
        encoded = encode_data(run, progress)
        data = batches(run, encoded)
        by_labels = train_dense(run, encoded, data, progress)  # and the other teachers
        model = new_model(config, encoded, UniformConfig(embedding_dim=config.embedding.embedding_dim))
        folder = run.folder / "taught-dense"
        soft_labels = run.soft_labels(config.largest_share)
        trained = train_model(
            model, data, config.training, seed=seed, folder=folder, stage="dense, taught", soft_labels=soft_labels,
            progress=progress,
        )  # fmt: skip
    assert trained.test is not None
    return {
        "by_labels": {"validation_auc": by_labels.validation_auc, "test_auc": by_labels.test_auc},
        "taught": {"validation_auc": trained.fit.validation.auc, "test_auc": trained.test.auc},
    }


def draw(settings: PaperSettings) -> list[Path]:
    return []  # a table alone


def claims(settings: PaperSettings) -> list[Claim]:
    return []  # the headline tells what a teacher comes to


def page(settings: PaperSettings) -> str:
    results = {at: read_result(result_path(settings, f"{at[0]}/{at[1]}/pep-plan")) for at in EXPERIMENTS}
    tried = {at: trials for at, content in results.items() if (trials := _trials(content))}
    made = [*(results[at] for at in tried), *_more(settings)]
    if not any(made):
        return NOT_RUN_YET
    heads = ["smallest ticket", "by labels", "taught", "search taught, too", "seeds that chose a teacher"]
    rows = [
        [f"{_place(source)}, {MODEL_NAMES[model]}", *_row(trials), str(sum(trial["share"] > 0 for trial in trials))]
        for (source, model), trials in tried.items()
    ]
    parts = [
        """Where `teacher_share` is left open, the smallest ticket is retrained by labels and on the dense model's
predictions, and where those gain at least 0.001, with the ticket of a second search on them, unless
`distill_search` says otherwise ([search.md](search.md#the-dense-model-as-a-teacher)). *Validation* AUC, by which runs
choose; beside the taught ones the difference from labels, paired. The paper has no teacher.""",
        table(heads, rows) if rows else NOT_RUN_YET,
        _more_teachers(settings, THREE_TEACHERS, OF_ONE_KIND),
        _more_teachers(settings, MIXED_TEACHERS, OF_THREE_KINDS),
        _against_taught_dense(settings),
        provenance(*made),
    ]
    return "\n\n".join(part for part in parts if part)


def _more_teachers(settings: PaperSettings, which: str, intro: str) -> str:
    """Three of them against one, at every size."""
    rows, words = [], []
    for model in TEACHER_EXPERIMENTS[which]:
        if several := teacher_experiment_points(settings, model, which):
            both = PairedComparison.of(several, plan_points(settings, model))
            rows += [[f"{MODEL_NAMES[model]}, {budget}", *cells] for budget, *cells in both.rows]
            words.append(both.in_words(f"With {MODEL_NAMES[model]} the mean of {which.replace('-', ' ')}"))
    if not rows:
        return f"{which.replace('-', ' ').capitalize()}: {NOT_RUN_YET}"
    return "\n\n".join(
        [
            f"""{intro} (`benchmarks/experiments/{teacher_experiment("<model>", which)}.toml`). Test AUC on
MovieLens-1M, next to the one teacher of `…/pep-plan.toml`:""",
            table(["parameters", which.replace("-", " "), "one", "difference, paired"], rows),
            " ".join(words),
        ]
    )


def _against_taught_dense(settings: PaperSettings) -> str:
    """Tickets beside the dense model that had the same teachers: pruning alone, distillation left out."""
    seeds = read_result(_taught_dense_path(settings)).get("seeds", {})
    if not seeds:
        return ""
    dense = {seed: found["taught"]["test_auc"] for seed, found in seeds.items()}
    gain = [found["taught"]["test_auc"] - found["by_labels"]["test_auc"] for found in seeds.values()]
    points = teacher_experiment_points(settings, "fm", MIXED_TEACHERS)
    told = []
    for budget in dict.fromkeys(point.budget for point in points):
        own = {str(point.seed): point.test_auc for point in points if point.budget == budget and point.test_auc}
        if differences := differences_by_seed(own, dense):
            told.append(f"{budget} {signed(differences)}")
    return f"""The dense FM taught by the same three comes to {mean_sd(list(dense.values()))}, {signed(gain)} against
labels. Against it, which is what pruning alone costs or gains, FM's tickets are: {"; ".join(told)}."""


def _taught_dense_path(settings: PaperSettings) -> Path:
    return settings.results / PART / "taught-dense-fm.json"


def _more(settings: PaperSettings) -> list[dict[str, Any]]:
    own = [read_result(result_path(settings, name)) for name in teacher_experiment_names(MODELS)]
    return [*own, read_result(_taught_dense_path(settings))]


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
    return DATASET_NAMES[source.removesuffix("-small")]
