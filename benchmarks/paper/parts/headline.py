"""PEP plan with its recorded settings beside what was published, and against its own dense model."""

from pathlib import Path

from paper.experiments import (
    MIXED_TEACHERS,
    THREE_TEACHERS,
    aucs_of,
    dense_points,
    more_teachers,
    more_teachers_names,
    plan_points,
    pruned_points,
    read_experiment,
    result_path,
    run_experiment,
)
from paper.page import ABSENT, command, made_from, mean_sd, not_run_yet, table
from paper.settings import PaperSettings
from paper.stored import read_result
from paper.verdicts import paired, signed

TITLE = "Ours beside what was published"
MODELS = ("fm", "deepfm", "autoint")
DENSE, LABELS_EXPERIMENT = "dense", "movielens-1m/fm/pep-plan-by-labels"
PUBLISHED: tuple[tuple[str, str, float | None, float | None], ...] = (
    ("fm", "6541", 0.8368, None),
    ("fm", "20k", None, 0.8479),
    ("fm", "30k", None, None),
    ("fm", "50k", None, None),
    ("fm", DENSE, None, 0.8387),
    ("deepfm", "8604", 0.8491, None),
    ("deepfm", "20k", None, 0.8464),
    ("deepfm", "30k", None, None),
    ("deepfm", DENSE, None, None),
    ("autoint", "9000", 0.8530, None),
    ("autoint", DENSE, None, None),
)
"""Model, size; AUC of the paper, and of the authors' code in an independent run, both picked on the test split."""


def run(settings: PaperSettings) -> None:
    """PEP plan under every model, also with more teachers and, for FM, by labels alone; and the published search."""
    for model in (model for model in MODELS if model in settings.models):
        run_experiment(settings, f"movielens-1m/{model}/pep-plan", settings.plan_seeds)
        run_experiment(settings, f"movielens-1m/{model}/pep-decay", settings.seeds)
    for name in more_teachers_names(settings.models):
        run_experiment(settings, name, settings.seeds)
    if "fm" in settings.models:
        run_experiment(settings, LABELS_EXPERIMENT, settings.seeds)


def draw(settings: PaperSettings) -> list[Path]:
    return []  # a table alone


def page(settings: PaperSettings) -> str:
    if not any(plan_points(settings, model) for model in MODELS):
        return not_run_yet("headline")
    names = [f"movielens-1m/{model}/pep-{kind}" for model in MODELS for kind in ("plan", "decay")]
    names += [LABELS_EXPERIMENT, *more_teachers_names(MODELS)]
    return "\n\n".join(
        filter(
            None,
            [
                f"""Command: {command("headline")}. MovieLens-1M, test AUC. *PEP plan* has the settings of
`benchmarks/experiments/movielens-1m/<model>/pep-plan.toml`: 64 wide, tickets that learn from the dense model; the
defaults for FM, where the search does, too. For DeepFM and AutoInt network, rates and plan were chosen on validation
with seed 0, one after another; AutoInt's dropout and teacher were taken over from DeepFM. *Published search* is PEP
decay under our protocol, 64 wide, by labels (`…/pep-decay.toml`), asked for no less than 30,000: for FM it stalls near
26,000. *Mixed teachers*: PEP plan again, taught by the mean of three dense models, one of each kind: FM, DeepFM and
AutoInt (`…/pep-plan-mixed-teachers.toml`); what is measured, and what it is measured against, is the one model of the
row, for FM with all trained at AutoInt's rate. The paper's AutoInt has 9,281 parameters.""",
                table(
                    [
                        "test AUC",
                        "paper",
                        "authors' code, re-run",
                        "published search",
                        "PEP plan",
                        "against dense, paired",
                        "PEP plan, mixed teachers",
                        "against dense, paired",
                    ],
                    [_row(settings, *published) for published in PUBLISHED],
                ),
                _a_fifth(settings),
                _cut_off(settings),
                made_from(*(read_result(result_path(settings, name)) for name in names)),
            ],
        )
    )


def _row(settings: PaperSettings, model: str, size: str, paper: float | None, rerun: float | None) -> list[str]:
    told = [ABSENT if auc is None else f"{auc:.4f}" for auc in (paper, rerun)]
    experiments = (f"movielens-1m/{model}/pep-plan", more_teachers(model, MIXED_TEACHERS))
    ours = [read_experiment(settings, name).values() for name in experiments]
    if size == DENSE:
        plain = [mean_sd(aucs_of(dense_points(frontiers))) for frontiers in ours]
        return [f"{model}, dense", *told, "", plain[0], "", plain[1], ""]
    decay = pruned_points(read_experiment(settings, f"movielens-1m/{model}/pep-decay").values(), "pep-decay")
    cells = []
    for frontiers in ours:
        points = [point for point in pruned_points(frontiers, "pep") if point.budget == size]
        cells += [mean_sd(aucs_of(points)), signed(paired(points, dense_points(frontiers)))]
    return [f"{model}, PEP at {size}", *told, mean_sd(aucs_of(decay, size)), *cells]


def _a_fifth(settings: PaperSettings) -> str:
    """Whether FM at no more than a fifth of its table is as good as the whole of it: with teachers and without."""
    told = []
    for name, way in (
        ("movielens-1m/fm/pep-plan", "taught throughout"),
        (more_teachers("fm", THREE_TEACHERS), "by three teachers"),
        (more_teachers("fm", MIXED_TEACHERS), "by mixed teachers"),
        (LABELS_EXPERIMENT, "by labels"),
    ):
        frontiers = read_experiment(settings, name).values()
        dense = dense_points(frontiers)
        points = [point for point in pruned_points(frontiers, way) if point.budget == "50k"]
        if points and dense:
            told.append(f"{way} {signed(paired(points, dense))}")
    if not told:
        return ""
    return f"FM at 50,000 parameters, 19 % of its table, against the dense model, paired: {'; '.join(told)}."


def _cut_off(settings: PaperSettings) -> str:
    """Trainings that ended at their last epoch while validation still rose."""
    told, unknown = [], []
    for model in MODELS:
        content = read_result(result_path(settings, f"movielens-1m/{model}/pep-plan"))
        for seed, found in content.get("seeds", {}).items():
            told += [f"{model} at {size}, seed {seed}" for size in found.get("still_improving", [])]
            unknown += [] if "still_improving" in found else [f"{model} seed {seed}"]
    missing = f" (Not recorded for {', '.join(unknown)}.)" if unknown else ""
    return f"Still improving at their last epoch: {'; '.join(told) or 'none'}.{missing}"
