"""PEP plan, by labels and taught, beside what was published, and against its own dense model."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from paper.experiments import (
    MIXED_TEACHERS,
    THREE_TEACHERS,
    aucs_of,
    dense_points,
    plan_points,
    pruned_points,
    read_experiment,
    result_path,
    run_experiment,
    teacher_experiment,
    teacher_experiment_names,
)
from paper.markdown import ABSENT, NOT_RUN_YET, Claim, holds, mean_sd, not_in_paper, provenance, table
from paper.parts import frontier
from paper.parts.data_statistics import auc_error
from paper.published import AUTHORS_CODE, AUTHORS_DENSE, PEP_0
from paper.result_files import read_result
from paper.settings import MODEL_NAMES, PaperSettings
from paper.verdicts.differences import MIN_DIFFERENCE, is_worse, paired_differences, signed
from thresher.report.frontier import FrontierPoint

TITLE = "Ours beside what was published"
PUBLISHED = "Figure 2 and Table 4, of which these are the smallest tables"
MODELS = ("fm", "deepfm", "autoint")
DENSE, LABELS_EXPERIMENT = "dense", "movielens-1m/fm/pep-plan-by-labels"
SIZES = {
    "fm": ("6541", "20k", "30k", "50k", DENSE),
    "deepfm": ("8604", "20k", "30k", DENSE),
    "autoint": ("9000", "20k", "30k", DENSE),
}
"""Of each model's rows; the first is that of the paper's smallest table, for AutoInt (9,281) a little below."""

A_FEW = 0.08
"""So much of a table is a few per cent of it; 20,000 parameters are, with which the authors' code was run."""


def run(settings: PaperSettings) -> None:
    """PEP plan under every model, also with more teachers and, for FM, by labels alone; and the published search."""
    for model in (model for model in MODELS if model in settings.models):
        run_experiment(settings, f"movielens-1m/{model}/pep-plan", settings.plan_seeds)
        run_experiment(settings, f"movielens-1m/{model}/pep-decay", settings.seeds)
    for name in teacher_experiment_names(settings.models):
        run_experiment(settings, name, settings.seeds)
    if "fm" in settings.models:
        run_experiment(settings, LABELS_EXPERIMENT, settings.seeds)


def draw(settings: PaperSettings) -> list[Path]:
    return []  # a table alone


def page(settings: PaperSettings) -> str:
    if not any(plan_points(settings, model) for model in MODELS):
        return NOT_RUN_YET
    names = [f"movielens-1m/{model}/pep-{kind}" for model in MODELS for kind in ("plan", "decay")]
    names += [LABELS_EXPERIMENT, *teacher_experiment_names(MODELS)]
    return "\n\n".join(
        filter(
            None,
            [
                """MovieLens-1M, test AUC.

- *Published search* is PEP decay under our protocol, by labels, 64 wide (`…/pep-decay.toml`), asked for no less than
  30,000: for FM it stalls near 26,000.
- *By labels*: PEP plan as the paper trains, on labels alone, 128 wide; from [the comparison of
  methods](#auc-against-parameters-and-bytes), as is the dense table, 64 wide, it is measured against.
- *Taught*: PEP plan with the settings of `benchmarks/experiments/movielens-1m/<model>/pep-plan.toml`, 64 wide, tickets
  that learn from the dense model. These are the defaults for FM, where the search learns from it, too. For
  DeepFM dropout, rates and plan were chosen on validation with seed 0, one after another, for AutoInt the rate; its
  dropout and teacher are DeepFM's, and its one layer of attention, instead of three, was taken for speed.
- *Mixed teachers*: the same, taught by the mean of three dense models, one each of FM, DeepFM and AutoInt
  (`…/pep-plan-mixed-teachers.toml`); for FM all are trained at AutoInt's rate, 0.003, which raises the dense model a
  little, too. What it is measured against is that dense model *by labels*: the difference is what teachers and pruning
  come to together. [A dense FM with the same teachers](#the-dense-model-as-a-teacher) is above all of FM's tickets; a
  dense AutoInt with them was not trained.

Differences are paired over seeds. The paper's AutoInt has 9,281 parameters. *–*: not published, not run, or out of the
published search's reach.""",
                table(
                    [
                        "test AUC",
                        "paper",
                        "authors' code, re-run",
                        "published search",
                        "by labels",
                        "minus its dense model",
                        "taught",
                        "minus its dense model",
                        "mixed teachers",
                        "minus the dense model by labels",
                    ],
                    [_row(settings, model, size) for model, sizes in SIZES.items() for size in sizes],
                ),
                _a_fifth(settings),
                _owed_to(settings),
                _precision(settings),
                _cut_off(settings, names),
                provenance(*(read_result(result_path(settings, name)) for name in names)),
            ],
        )
    )


def claims(settings: PaperSettings) -> list[Claim]:
    """Every model's small tables against its dense one, by labels as in the paper, then taught."""
    found = []
    for said, sides in (
        ("A few per cent of the parameters are as good as all of them", _by_labels),
        (not_in_paper("taught by the dense model they are"), _taught),
    ):
        told = [one for model in MODELS for one in _against_dense(model, *sides(settings, model))]
        if told:
            here = f"MovieLens-1M, test AUC minus the dense model's: {'; '.join(words for words, _ in told)}"
            found.append(Claim(said, holds(as_good for _, as_good in told), here))
    return found


Sides = tuple[Sequence[FrontierPoint], Sequence[FrontierPoint]]


def _by_labels(settings: PaperSettings, model: str) -> Sides:
    """Tickets that learned from labels alone, and the dense model of the same comparison."""
    points = frontier.read_points(settings, model)
    widths = [point for point in points if point.label == "uniform" and point.budget is None]
    widest = max((point.num_parameters for point in widths), default=0)
    return (
        [point for point in points if point.label == frontier.PLAN],
        [point for point in widths if point.num_parameters == widest],
    )


def _taught(settings: PaperSettings, model: str, experiment: str = "pep-plan") -> Sides:
    """Tickets that learned from the dense model, or from several, and the dense model they are measured against."""
    frontiers = read_experiment(settings, f"movielens-1m/{model}/{experiment}").values()
    return pruned_points(frontiers, "pep"), dense_points(frontiers)


def _against_dense(
    model: str, points: Sequence[FrontierPoint], dense: Sequence[FrontierPoint]
) -> list[tuple[str, bool]]:
    """In words, and whether it is as good, at every size that is a few per cent of the dense one.

    As good is what is neither behind nor on average more than `MIN_DIFFERENCE` below: few seeds may fail to show that.
    """
    found = []
    for size in sorted({point.num_parameters for point in points}, reverse=True):
        differences = paired_differences([point for point in points if point.num_parameters == size], dense)
        if differences and size <= A_FEW * dense[0].num_parameters:
            told = f"{MODEL_NAMES[model]} with {size / dense[0].num_parameters:.1%} {signed(differences)}"
            found.append((told, not is_worse(differences) and fmean(differences) >= -MIN_DIFFERENCE))
    return found


def _published(model: str, size: str) -> list[str]:
    """The paper's AUC at a size, and that of the authors' code."""
    paper = PEP_0["movielens-1m"][model][0] if size == SIZES[model][0] else None
    authors = AUTHORS_CODE[model][0] if size == "20k" else AUTHORS_DENSE.get(model) if size == DENSE else None
    return [ABSENT if auc is None else f"{auc:.4f}" for auc in (paper, authors)]


def _row(settings: PaperSettings, model: str, size: str) -> list[str]:
    told = [f"{MODEL_NAMES[model]}, {'dense' if size == DENSE else f'PEP at {size}'}", *_published(model, size)]
    decay = [point for point in _taught(settings, model, "pep-decay")[0] if point.budget == size]
    told.append("" if size == DENSE else mean_sd(aucs_of(decay)))
    for points, dense in (
        _by_labels(settings, model),
        _taught(settings, model),
        _taught(settings, model, f"pep-plan-{MIXED_TEACHERS}"),
    ):
        own = [point for point in points if point.budget == size]
        told += (
            [mean_sd(aucs_of(dense)), ""]
            if size == DENSE
            else [mean_sd(aucs_of(own)), signed(paired_differences(own, dense))]
        )
    return told


def _a_fifth(settings: PaperSettings) -> str:
    """Whether FM at no more than a fifth of its table is as good as the whole of it: with teachers and without."""
    told = []
    for name, way in (
        ("movielens-1m/fm/pep-plan", "taught throughout"),
        (teacher_experiment("fm", THREE_TEACHERS), "by three teachers"),
        (teacher_experiment("fm", MIXED_TEACHERS), "by mixed teachers"),
        (LABELS_EXPERIMENT, "by labels"),
    ):
        frontiers = read_experiment(settings, name).values()
        dense = dense_points(frontiers)
        points = [point for point in pruned_points(frontiers, way) if point.budget == "50k"]
        if points and dense:
            told.append(f"{way} {signed(paired_differences(points, dense))}")
    if not told:
        return ""
    return f"FM at 50,000 parameters, 19 % of its table, against the dense model, paired: {'; '.join(told)}."


def _owed_to(settings: PaperSettings) -> str:
    """What FM's distance from published numbers is owed to: training, labels, the teacher."""
    (labels, dense), (taught, _) = _by_labels(settings, "fm"), _taught(settings, "fm")
    smallest, published = SIZES["fm"][0], PEP_0["movielens-1m"]["fm"][0]
    found = aucs_of(dense), aucs_of(labels, "20k"), aucs_of(labels, smallest), aucs_of(taught, smallest)
    if not all(found):
        return ""
    trained, at_20k, by_labels, by_teacher = map(fmean, found)
    return (
        f"FM minus what was published: dense {trained - AUTHORS_DENSE['fm']:+.4f} (authors' code), by training "
        f"alone; at 20,000 parameters by labels {at_20k - AUTHORS_CODE['fm'][0]:+.4f} (authors' code); at {smallest} "
        f"by labels {by_labels - published:+.4f} (paper), to which the teacher adds {by_teacher - by_labels:+.4f}."
    )


def _cut_off(settings: PaperSettings, names: Sequence[str]) -> str:
    """Trainings that ended at their last epoch while validation still rose."""
    told, unknown = [], []
    for name in names:
        for seed, found in read_result(result_path(settings, name)).get("seeds", {}).items():
            short = name.removeprefix("movielens-1m/")
            told += [f"{short} at {size}, seed {seed}" for size in found.get("still_improving", [])]
            unknown += [] if "still_improving" in found else [f"{short} seed {seed}"]
    missing = f" (Not recorded for {', '.join(unknown)}.)" if unknown else ""
    return f"Still improving at their last epoch: {'; '.join(told) or 'none'}.{missing}"


def _precision(settings: PaperSettings) -> str:
    """How much an AUC owes to the rows it is measured on, which no number of seeds shows."""
    error = auc_error(settings, "movielens-1m", 0.85)
    return (
        ""
        if error is None
        else f"All seeds share one test split. The standard error of an AUC that comes from its rows is {error:.4f}; "
        "models on the same rows err together, so differences between them err less. What others measured on splits of "
        "their own differs from ours by as much for that reason alone."
    )
