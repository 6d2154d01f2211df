"""Ablation of the defaults: one setting of the search or of retraining changed at a time, compared on validation.

MovieLens-1M, tickets retrained with hard labels. FM covers all settings with a default; DeepFM and AutoInt cover those
that a network adds. Settings that matter only after the search share it. The test split is not read for these numbers,
because choices are made by them, except for the effect of learning the deviation.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from environment import run_environment
from paper.experiments import digest, load_experiment, pruned_points, read_experiment, result_path, run_experiment
from paper.markdown import NOT_RUN_YET, Claim, holds, mean_sd, paragraphs, provenance, table
from paper.result_files import read_or_start, read_result, write_result
from paper.settings import MODEL_NAMES, PaperSettings
from paper.variants import DEFAULT, VARIANTS, Variant
from paper.verdicts.differences import (
    MIN_DIFFERENCE,
    T_QUANTILES,
    PairedComparison,
    differences_by_seed,
    is_better,
    is_worse,
    signed,
)
from thresher._internal.settings import override
from thresher._internal.storage.files import read_json
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.table import EncodedTable
from thresher.embeddings.uniform import UniformConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.prune import encode_data
from thresher.experiment.retrain import retrain_ticket
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_models import new_model, shuffled_batches
from thresher.experiment.run.run_workflow import RunWorkflow
from thresher.models.base import CtrModel
from thresher.search.ticket import MaskTicket, kept_weights
from thresher.training.distillation import HARD_LABELS
from thresher.training.epoch import train_epoch
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import build_optimizer

TITLE = "Ablation of the defaults"
PUBLISHED = ""
MEASURED = """The change of *validation* AUC when one setting is changed at a time, on MovieLens-1M with D = 64 and hard
labels, and the change of test AUC when the deviation is fixed at 0. [Granularities](#granularity-of-the-thresholds) and
[distillation](#distillation-from-the-dense-model) have their own sections."""
PART = "ablation"
BUDGETS = {"fm": ("20k", "6541"), "deepfm": ("8604",), "autoint": ("9000",)}
"""Model → sizes at which its tickets are compared."""
ENOUGH = min(T_QUANTILES)
"""With fewer seeds, a verdict states their number."""
LEARNED, FIXED = "movielens-1m/fm/pep-plan-by-labels", "movielens-1m/fm/pep-plan-fixed-deviation"
"""The one default that is also compared on test AUC, because learned thresholds are a claim of the paper."""
QUICK_VARIANTS = {"fm": 3, "deepfm": 2, "autoint": 0}


def run(settings: PaperSettings) -> None:
    if "fm" in settings.models:
        for name in (LEARNED, FIXED):
            run_experiment(settings, name, settings.seeds)
    for model in (model for model in BUDGETS if model in settings.models):
        base = load_experiment(settings, f"movielens-1m/{model}/pep-plan")
        base = replace(base, budgets=BUDGETS[model], teacher_share=0.0)
        variants = VARIANTS[model][: QUICK_VARIANTS[model]] if settings.quick else VARIANTS[model]
        for seed in settings.seeds:
            for variant in variants:
                _add(settings, settings.result_path(PART, model), replace(base, seed=seed), variant)


def _add(settings: PaperSettings, path: Path, base: RunConfig, variant: Variant) -> None:
    """Compute a variant with the seed of `base` unless the result file has it."""
    stored, seed = replace(base, seed=0), str(base.seed)
    if seed in read_or_start(settings, path, stored, variants={})["variants"].get(variant.name, {}):
        return
    environment = run_environment()  # before a long run: the working tree may change meanwhile
    aucs = validation_aucs(settings, base, variant)
    content = read_or_start(settings, path, stored, variants={})
    content["variants"].setdefault(variant.name, {})[seed] = aucs
    write_result(path, content, environment)
    print(f"{path.stem} {variant.name} seed {seed}: {aucs}", flush=True)


def validation_aucs(settings: PaperSettings, base: RunConfig, variant: Variant) -> dict[str, float]:
    """Return budget → validation AUC of the retrained ticket."""
    config = override(replace(base, data=settings.data(base.data.source)), variant.changes)
    searched = replace(config, training=TrainingConfig(batch_size=config.training.batch_size), rewind="initial")
    folder = settings.temporary / PART / f"{digest(searched)}{variant.slug}"
    with Run.started(folder, searched, resume=True) as found, variant.patched():
        table = encode_data(found.config.data, found.encoded)
        data = replace(shuffled_batches(config, table), test=None)
        tickets = RunWorkflow.of(found, table).find_tickets(HARD_LABELS)
    early = early_model(config, table, data, variant.rewind_epochs) if variant.rewind_epochs else None
    aucs = {}
    for ticket in tickets:
        assert isinstance(ticket, MaskTicket)
        if early is not None:
            ticket = replace(ticket, initial=kept_weights(early, ticket.masks))
        purpose = "retrain" if config.rewind == "random" else "initial"
        model = new_model(config, table, config.embedding, purpose=purpose)
        trained = retrain_ticket(
            ticket, model, data, config.training, rewind=config.stage_settings().resolved_rewind, seed=config.seed
        )
        aucs[str(ticket.budget)] = round(trained.fit.validation.auc, 6)
    return aucs


def early_model(config: RunConfig, table: EncodedTable, data: SplitBatches, num_epochs: int) -> CtrModel:
    """Train the unpruned model for a few epochs; a search has the same weights during its warm-up."""
    model = new_model(config, table, UniformConfig(embedding_dim=config.embedding.embedding_dim))
    optimizer = build_optimizer(model, config.search.optimizer)
    for epoch in range(1, num_epochs + 1):
        train_epoch(model, data.train, optimizer, epoch)
    return model


def draw(settings: PaperSettings) -> list[Path]:
    return []


def claims(settings: PaperSettings) -> list[Claim]:
    claim = learning_claim(settings)
    return [] if claim is None else [claim]


def learning_claim(settings: PaperSettings) -> Claim | None:
    """Return the claim that learned thresholds give better tickets than the clock alone; None without results."""
    both = _deviation_comparison(settings)
    found = {} if both is None else {budget: each for budget, each in both.differences.items() if each}
    if not found:
        return None
    differences = "; ".join(f"{at} {signed(each)}" for at, each in found.items())
    verdict = holds(map(is_better, found.values()))
    meaning = "No benefit of learning the thresholds over magnitude pruning with a soft threshold was found."
    return Claim(
        "Learned thresholds are better than fixed ones",
        verdict,
        f"FM on MovieLens-1M, learned minus fixed: {differences}",
        meaning if verdict == "no" else "",
    )


def page(settings: PaperSettings) -> str:
    sections = [_section(settings, model) for model in BUDGETS if settings.result_path(PART, model).exists()]
    sections.append(_deviation(settings))
    if not any(sections):
        return NOT_RUN_YET
    about = """The first row of a table is the validation AUC of the defaults; the other rows are differences from it,
paired by seed. Rows without a setting change the code of the search (`benchmarks/paper/variants.py`). In some, the
number of kept entries falls at another pace, from the same first to the same last number. In *hard when late*, the soft
threshold becomes a hard threshold as soon as less than a fifth of a batch's entries is left. Soft thresholds with a
cubic plan are a row here; hard thresholds with a cubic plan are `gradual-magnitude` in [the comparison of
methods](#auc-against-parameters-and-bytes). For DeepFM and AutoInt, *the defaults* are the settings of
`benchmarks/experiments/movielens-1m/<model>/pep-plan.toml`, and settings that were decided with FM are not repeated.

Two changes can be better than a default and are not adopted. A search with D = 128, as in the comparison of methods,
needs about twice the time and memory, and its gain with hard labels was not found with distillation (one trial, seed 0,
stopped early, described in DeepFM's `pep-plan.toml`). More patience in retraining gains 0.001 or less for deep models,
at the cost of longer retraining."""
    return paragraphs(about, *sections)


def _section(settings: PaperSettings, model: str) -> str:
    content, budgets = read_json(settings.result_path(PART, model)), BUDGETS[model]
    results: dict[str, dict[str, Any]] = content["variants"]
    rows, missing = [], []
    for variant in VARIANTS[model]:
        own = results.get(variant.name)
        if own is None:
            missing.append(f"`{variant.name}`")
        elif variant.name == DEFAULT:
            rows.append([f"**{DEFAULT}**", *(mean_sd([aucs[budget] for aucs in own.values()]) for budget in budgets)])
        else:
            gains = [signed(_gains(results, own, budget)) for budget in budgets]
            rows.append([f"{variant.topic}: `{variant.name}`", *gains])
    return paragraphs(
        f"### {MODEL_NAMES[model]}, one change at a time",
        table(["change", *budgets], rows),
        _verdict(results, budgets),
        f"Not run yet: {', '.join(missing)}." if missing else "",
        provenance(content),
    )


def _gains(variants: dict[str, dict[str, Any]], own: dict[str, Any], budget: str) -> list[float]:
    """Return the gain of a change at one budget for each common seed."""
    return differences_by_seed(
        *({seed: aucs[budget] for seed, aucs in side.items()} for side in (own, variants.get(DEFAULT, {})))
    )


def better_and_worse(variants: dict[str, dict[str, Any]], budgets: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the changes that are better at some size and worse at none, and those that are worse at some size."""
    better, worse = [], []
    for name, own in variants.items():
        gains = [gains for budget in budgets if name != DEFAULT and (gains := _gains(variants, own, budget))]
        if any(map(is_worse, gains)):
            worse.append(name)
        elif any(map(is_better, gains)):
            better.append(name)
    return better, worse


def _verdict(variants: dict[str, dict[str, Any]], budgets: Sequence[str]) -> str:
    def listed(names: Sequence[str]) -> str:
        seeds = {name: len(variants[name].keys() & variants[DEFAULT].keys()) for name in names}
        few = {name: f" ({many} seed{'s' if many > 1 else ''})" for name, many in seeds.items() if many < ENOUGH}
        return ", ".join(f"`{name}`{few.get(name, '')}" for name in names) or "none"

    better, worse = better_and_worse(variants, budgets)
    where = " at one size or both" if len(budgets) > 1 else ""
    return (
        f"Better than the defaults{where}: {listed(better)}. Worse{where}: {listed(worse)}. "
        "All others show no significant difference."
    )


def _deviation(settings: PaperSettings) -> str:
    """Compare a fixed deviation with a learned one on the test split."""
    both = _deviation_comparison(settings)
    if both is None:
        return ""
    return paragraphs(
        "### Deviation fixed at 0",
        f"""With the deviation fixed at 0 only the clock moves the thresholds: this is magnitude pruning with a soft
threshold. *Test* AUC on MovieLens-1M, FM, D = 64, hard labels (`benchmarks/experiments/{LEARNED}.toml` and
`…/{Path(FIXED).name}.toml`). The paper has no such ablation.""",
        table(["parameters", "deviation learned", "fixed at 0", "difference"], both.rows),
        both.summary("Learning the deviation") + _why_learned(both),
        provenance(*(read_result(result_path(settings, name)) for name in (LEARNED, FIXED))),
    )


def _deviation_comparison(settings: PaperSettings) -> PairedComparison | None:
    learned, fixed = (pruned_points(read_experiment(settings, name).values(), name) for name in (LEARNED, FIXED))
    return PairedComparison.of(learned, fixed) if learned and fixed else None


def _why_learned(both: PairedComparison) -> str:
    """Explain the default, if the numbers support it."""
    gains = [fmean(each) for each in both.differences.values() if each]
    if not gains or min(gains) <= -MIN_DIFFERENCE or max(gains) >= MIN_DIFFERENCE:
        return ""
    return (
        " The library learns the deviation by default, as published, because at no size the mean difference reaches "
        f"{MIN_DIFFERENCE}. This was measured for FM only, on this data set, with hard labels."
    )
