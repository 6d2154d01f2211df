"""Distillation from the dense model: hard labels, soft labels, soft labels in the search; and several teachers."""

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
from paper.markdown import ABSENT, NOT_RUN_YET, Claim, mean_sd, paragraphs, provenance, table
from paper.result_files import compute_missing_seeds, read_result
from paper.settings import DATASET_NAMES, MODEL_NAMES, MODELS, PaperSettings
from paper.verdicts.differences import PairedComparison, differences_by_seed, signed
from thresher.cli.console import display
from thresher.embeddings.uniform import UniformConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import encode_data
from thresher.experiment.retrain import train_model
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_models import new_model, shuffled_batches
from thresher.experiment.run.run_workflow import RunWorkflow
from thresher.training.distillation import candidate_plans

TITLE = "Distillation from the dense model"
PUBLISHED = ""
MEASURED = """Validation AUC of the smallest ticket with hard labels, with retraining on soft labels of the dense model,
and with soft labels in the search as well; then test AUC with one teacher and with the mean of three. The paper does
not use distillation."""
RESULTS = "teacher"
"""Folder of the result files."""
HARD_LABELS, *SOFT_LABELS = map(str, candidate_plans(None, None))
STORED_NAMES = {"by-labels": HARD_LABELS} | dict(zip(("taught-1", "searched-taught-1"), SOFT_LABELS, strict=True))
"""Names in the committed result files → names of the plans."""
EXPERIMENTS = (
    ("movielens-1m", "fm"),
    *((source, model) for source in ("criteo-small", "avazu-small") for model in MODELS),
)
"""Data set and model; DeepFM and AutoInt on MovieLens-1M always use distillation."""

INTRODUCTIONS = {
    THREE_TEACHERS: """With `num_teachers = 3` two more dense models are trained with other seeds, and the soft labels
are
the mean of all three""",
    MIXED_TEACHERS: """With `teacher_models` the soft labels are the mean of several kinds of dense models, here one
each of FM, DeepFM and AutoInt. FM's run uses soft labels in the search and in retraining, and trains all models with
learning rate 0.003 instead of 0.001; with [hard labels](#ablation-of-the-defaults) this changes the AUC of tickets by
less than 0.001 and improves the dense model slightly""",
}


def run(settings: PaperSettings) -> None:
    """Run the experiments, which record the variants they chose from, and a distilled dense model."""
    for source, model in EXPERIMENTS:
        if model in settings.models:
            run_experiment(settings, f"{source}/{model}/pep-plan", settings.seeds)
    for name in teacher_experiment_names(settings.models):
        run_experiment(settings, name, settings.seeds)
    if "fm" in settings.models:
        config = load_experiment(settings, teacher_experiment("fm", MIXED_TEACHERS))
        compute_missing_seeds(
            settings, _distilled_dense_path(settings), config, lambda seed: distilled_dense(settings, config, seed)
        )


def distilled_dense(settings: PaperSettings, config: RunConfig, seed: int) -> dict[str, Any]:
    """Train the dense model on the same soft labels as the tickets, to separate distillation from pruning."""
    config = replace(config, data=settings.data("movielens-1m"), seed=seed)
    with display() as progress, Run.started(settings.temporary / RESULTS / digest(config), config, resume=True) as run:
        encoded = encode_data(run.config.data, run.encoded, progress)
        data = shuffled_batches(config, encoded)
        workflow = RunWorkflow.of(run, encoded, progress)
        hard = workflow.train_dense()
        workflow.make_soft_labels()
        model = new_model(config, encoded, UniformConfig(embedding_dim=config.embedding.embedding_dim))
        folder = run.folder / "taught-dense"
        soft_labels = run.load_soft_labels(config.largest_share)
        trained = train_model(
            model, data, config.training, seed=seed, folder=folder, stage="dense, distilled", soft_labels=soft_labels,
            progress=progress,
        )  # fmt: skip
    assert trained.test is not None
    return {
        "by_labels": {"validation_auc": hard.validation_auc, "test_auc": hard.test_auc},
        "taught": {"validation_auc": trained.fit.validation.auc, "test_auc": trained.test.auc},
    }


def draw(settings: PaperSettings) -> list[Path]:
    return []


def claims(settings: PaperSettings) -> list[Claim]:
    return []  # the headline contains the claim about distillation


def page(settings: PaperSettings) -> str:
    results = {at: read_result(result_path(settings, f"{at[0]}/{at[1]}/pep-plan")) for at in EXPERIMENTS}
    tried = {at: trials for at, content in results.items() if (trials := _trials(content))}
    others = [read_result(result_path(settings, name)) for name in teacher_experiment_names(MODELS)]
    contents = [*(results[at] for at in tried), *others, read_result(_distilled_dense_path(settings))]
    if not any(contents):
        return NOT_RUN_YET
    heads = ["smallest ticket", "hard labels", "distilled retraining", "distilled search and retraining",
             "seeds that chose distillation"]  # fmt: skip
    rows = [
        [
            f"{DATASET_NAMES[source.removesuffix('-small')]}, {MODEL_NAMES[model]}",
            *_row(trials),
            str(sum(trial["share"] > 0 for trial in trials)),
        ]
        for (source, model), trials in tried.items()
    ]
    return paragraphs(
        """If `teacher_share` is not set, a run retrains the smallest ticket with hard labels and with soft labels of
the dense model. If soft labels gain at least 0.001, it also tries the ticket of a second search on soft labels, unless
`distill_search` is set ([distillation](distillation.md)). The table shows *validation* AUC, by
which runs choose, and in brackets the paired difference from hard labels.""",
        table(heads, rows) if rows else NOT_RUN_YET,
        *(_several_teachers(settings, which) for which in INTRODUCTIONS),
        _against_distilled_dense(settings),
        provenance(*contents),
    )


def _several_teachers(settings: PaperSettings, which: str) -> str:
    """Compare several teachers with one at every size."""
    name = which.replace("-", " ")
    rows, texts = [], []
    for model in TEACHER_EXPERIMENTS[which]:
        if several := teacher_experiment_points(settings, model, which):
            both = PairedComparison.of(several, plan_points(settings, model))
            rows += [[f"{MODEL_NAMES[model]}, {budget}", *cells] for budget, *cells in both.rows]
            texts.append(both.summary(f"For {MODEL_NAMES[model]} the mean of {name}"))
    if not rows:
        return f"{name.capitalize()}: {NOT_RUN_YET}"
    return paragraphs(
        f"""{INTRODUCTIONS[which]} (`benchmarks/experiments/{teacher_experiment("<model>", which)}.toml`). Test AUC on
MovieLens-1M, compared with the one teacher of `…/pep-plan.toml`:""",
        table(["parameters", name, "one teacher", "difference"], rows),
        " ".join(texts),
    )


def _against_distilled_dense(settings: PaperSettings) -> str:
    """Compare tickets with the dense model that had the same teachers: the effect of pruning alone."""
    seeds = read_result(_distilled_dense_path(settings)).get("seeds", {})
    if not seeds:
        return ""
    dense = {seed: found["taught"]["test_auc"] for seed, found in seeds.items()}
    gain = [found["taught"]["test_auc"] - found["by_labels"]["test_auc"] for found in seeds.values()]
    points = teacher_experiment_points(settings, "fm", MIXED_TEACHERS)
    texts = []
    for budget in dict.fromkeys(point.budget for point in points):
        own = {str(point.seed): point.test_auc for point in points if point.budget == budget and point.test_auc}
        if differences := differences_by_seed(own, dense):
            texts.append(f"{budget} {signed(differences)}")
    return (
        f"The dense FM distilled from the same three teachers has test AUC {mean_sd(list(dense.values()))}, "
        f"{signed(gain)} against hard labels. The difference of FM's tickets from it, which is the effect of pruning "
        f"alone: {'; '.join(texts)}."
    )


def _distilled_dense_path(settings: PaperSettings) -> Path:
    return settings.results / RESULTS / "taught-dense-fm.json"


def _trials(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the trials of the seeds that compared hard and soft labels."""
    found = []
    for trial in (seed.get("teacher", {}) for seed in content.get("seeds", {}).values()):
        aucs = {STORED_NAMES.get(name, name): auc for name, auc in trial.get("validation_auc", {}).items()}
        if HARD_LABELS in aucs:
            found.append({"share": trial["share"], "validation_auc": aucs})
    return found


def _row(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [mean_sd([trial["validation_auc"][HARD_LABELS] for trial in trials])]
    for variant in SOFT_LABELS:
        own = [trial["validation_auc"] for trial in trials if variant in trial["validation_auc"]]
        gains = [aucs[variant] - aucs[HARD_LABELS] for aucs in own]
        cells.append(f"{fmean(aucs[variant] for aucs in own):.4f} ({signed(gains)})" if own else ABSENT)
    return cells
