"""What the defaults rest on: one setting of the search or of retraining changed at a time, judged on validation.

MovieLens-1M, tickets retrained on labels alone; under FM all that the library has a default for, under DeepFM and
AutoInt what a network adds. Settings that matter only after the search share it. The test split is not read for these,
the numbers choices are made by; what learning the deviation is worth is told on it, too.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from environment import run_environment
from paper.experiments import digest, load_experiment, pruned_points, read_experiment, result_path, run_experiment
from paper.markdown import NOT_RUN_YET, Claim, holds, mean_sd, provenance, table
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
from thresher._internal.files import read_json
from thresher._internal.settings import override
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.table import EncodedTable
from thresher.embeddings.uniform import UniformConfig
from thresher.experiment.fresh import new_model
from thresher.experiment.retrain import retrain_ticket
from thresher.experiment.runs import Run, RunConfig
from thresher.experiment.stages import batches, encode_data, find_run_tickets
from thresher.models.base import CtrModel
from thresher.search.ticket import MaskTicket, kept_weights
from thresher.training.distillation import HARD_LABELS
from thresher.training.fit import TrainingConfig
from thresher.training.loop import train_epoch
from thresher.training.optimizers import build_optimizer

TITLE = "What the defaults rest on"
PUBLISHED = ""
PART = "ablation"
BUDGETS = {"fm": ("20k", "6541"), "deepfm": ("8604",), "autoint": ("9000",)}
"""Model → the sizes its tickets are judged at."""
ENOUGH = min(T_QUANTILES)
"""Seeds a verdict needs to be told without their number."""
LEARNED, FIXED = "movielens-1m/fm/pep-plan-by-labels", "movielens-1m/fm/pep-plan-fixed-deviation"
"""The one default that test AUC is told of, too: what learned thresholds are worth is the paper's matter."""
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
                _add(settings, _path(settings, model), replace(base, seed=seed), variant)


def _add(settings: PaperSettings, path: Path, base: RunConfig, variant: Variant) -> None:
    """Compute what the result file of a model lacks, with the seed of `base`."""
    stored, seed = replace(base, seed=0), str(base.seed)
    if seed in read_or_start(settings, path, stored, variants={})["variants"].get(variant.name, {}):
        return
    made = run_environment()  # before a long run: the tree may change meanwhile
    aucs = validation_aucs(settings, base, variant)
    content = read_or_start(settings, path, stored, variants={})
    content["variants"].setdefault(variant.name, {})[seed] = aucs
    write_result(path, content, made)
    print(f"{path.stem} {variant.name} seed {seed}: {aucs}", flush=True)


def validation_aucs(settings: PaperSettings, base: RunConfig, variant: Variant) -> dict[str, float]:
    """Budget → validation AUC of the retrained ticket."""
    config = override(replace(base, data=settings.data(base.data.source)), variant.changes)
    searched = replace(config, training=TrainingConfig(batch_size=config.training.batch_size), rewind="initial")
    folder = settings.temporary / PART / f"{digest(searched)}{variant.slug}"
    with Run.started(folder, searched, resume=True) as found, variant.patched():
        table = encode_data(found)
        data = replace(batches(found, table), test=None)
        tickets = find_run_tickets(found, table, data, HARD_LABELS)
    early = early_model(config, table, data, variant.rewind_epochs) if variant.rewind_epochs else None
    aucs = {}
    for ticket in tickets:
        assert isinstance(ticket, MaskTicket)
        if early is not None:
            ticket = replace(ticket, initial=kept_weights(early, ticket.masks))
        purpose = "retrain" if config.rewind == "random" else "initial"
        model = new_model(config, table, config.embedding, purpose=purpose)
        trained = retrain_ticket(ticket, model, data, config.training, rewind=config.rewind, seed=config.seed)
        aucs[str(ticket.budget)] = round(trained.fit.validation.auc, 6)
    return aucs


def early_model(config: RunConfig, table: EncodedTable, data: SplitBatches, num_epochs: int) -> CtrModel:
    """The unpruned model after a few epochs: a search that warms up passes through its weights."""
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
    """Whether thresholds that are learned make better tickets than the clock alone; None while that was not run."""
    both = _side_by_side(settings)
    found = {} if both is None else {budget: each for budget, each in both.differences.items() if each}
    if not found:
        return None
    here = f"FM on MovieLens-1M, learned minus fixed: {'; '.join(f'{at} {signed(each)}' for at, each in found.items())}"
    return Claim("Thresholds are to be learned", holds(map(is_better, found.values())), here)


def page(settings: PaperSettings) -> str:
    told = [_section(settings, model) for model in BUDGETS if _path(settings, model).exists()]
    told += [_deviation(settings)]
    if not any(told):
        return NOT_RUN_YET
    about = """One setting changed at a time; MovieLens-1M, D = 64, by labels, *validation* AUC: the defaults' own, and
below it each change's difference, paired over seeds. Granularities have a table of their own,
and so has [the teacher](#the-dense-model-as-a-teacher). Rows that name no setting put into the search what the library
has none for (`benchmarks/paper/variants.py`): plans that fall at another pace between the same ends, and a threshold
that is hard once less than a fifth of a batch's entries is left. Soft thresholds on a cubic plan are a row here; hard
ones throughout, on a cubic plan, are `gradual-magnitude` among the methods at equal parameters. For DeepFM and AutoInt
*the defaults* are the settings of `benchmarks/experiments/movielens-1m/<model>/pep-plan.toml`, and what FM has decided
is not asked again.

What may be ahead of a default and is none: a search 128 wide, as in the comparison of methods, takes about twice the
time and memory, and what it gains by labels was not seen in a taught ticket (one trial, seed 0, ended before its time,
told in DeepFM's `pep-plan.toml`); more patience in retraining gains deep models a thousandth or less, for longer
retraining."""
    return "\n\n".join(filter(None, [about, *told]))


def _section(settings: PaperSettings, model: str) -> str:
    content, budgets = read_json(_path(settings, model)), BUDGETS[model]
    variants: dict[str, dict[str, Any]] = content["variants"]
    rows = []
    for variant in (variant for variant in VARIANTS[model] if variant.name in variants):
        own = variants[variant.name]
        if variant.name == DEFAULT:
            told = [mean_sd([aucs[budget] for aucs in own.values()]) for budget in budgets]
            rows.append([f"**{DEFAULT}**", *told])
        else:
            gains = [signed(_gains(variants, own, budget)) for budget in budgets]
            rows.append([f"{variant.about}: `{variant.name}`", *gains])
    missing = [f"`{variant.name}`" for variant in VARIANTS[model] if variant.name not in variants]
    parts = [
        f"### {MODEL_NAMES[model]}, one change at a time",
        table(["change", *budgets], rows),
        _verdict(variants, budgets),
        f"Not run yet: {', '.join(missing)}." if missing else "",
        provenance(content),
    ]
    return "\n\n".join(part for part in parts if part)


def _gains(variants: dict[str, dict[str, Any]], own: dict[str, Any], budget: str) -> list[float]:
    """What a change gains at one budget, for each seed both have."""
    return differences_by_seed(
        *({seed: aucs[budget] for seed, aucs in side.items()} for side in (own, variants.get(DEFAULT, {})))
    )


def better_and_worse(variants: dict[str, dict[str, Any]], budgets: Sequence[str]) -> tuple[list[str], list[str]]:
    """Changes that are ahead of the defaults at one size and not behind at another, and those that are behind."""
    better, worse = [], []
    for name, own in variants.items():
        gains = [gains for budget in budgets if name != DEFAULT and (gains := _gains(variants, own, budget))]
        if any(map(is_worse, gains)):
            worse.append(name)
        elif any(map(is_better, gains)):
            better.append(name)
    return better, worse


def _verdict(variants: dict[str, dict[str, Any]], budgets: Sequence[str]) -> str:
    def told(names: Sequence[str]) -> str:
        seeds = {name: len(variants[name].keys() & variants[DEFAULT].keys()) for name in names}
        few = {name: f" ({many} seed{'s' if many > 1 else ''})" for name, many in seeds.items() if many < ENOUGH}
        return ", ".join(f"`{name}`{few.get(name, '')}" for name in names)

    better, worse = better_and_worse(variants, budgets)
    where = " at one size or both" if len(budgets) > 1 else ""
    ahead = f"Ahead of the defaults{where}: {told(better)}" if better else "No change is ahead of the defaults"
    return f"{ahead}. Behind{where}: {told(worse) or 'none'}. All others are level."


def _deviation(settings: PaperSettings) -> str:
    """The search with the deviation fixed at 0 beside the one that learns it, on the test split."""
    both = _side_by_side(settings)
    if both is None:
        return ""
    return "\n\n".join(
        [
            "### The deviation fixed at 0",
            f"""Then nothing but the clock moves a threshold: magnitude pruning with a soft threshold. *Test* AUC on
MovieLens-1M, FM, D = 64, retrained on labels alone (`benchmarks/experiments/{LEARNED}.toml` and
`…/{Path(FIXED).name}.toml`). The paper has no such ablation.""",
            table(["parameters", "deviation learned", "fixed at 0", "difference, paired"], both.rows),
            both.in_words("Learning it") + _why_learned(both),
            provenance(*(read_result(result_path(settings, name)) for name in (LEARNED, FIXED))),
        ]
    )


def _side_by_side(settings: PaperSettings) -> PairedComparison | None:
    learned, fixed = (pruned_points(read_experiment(settings, name).values(), name) for name in (LEARNED, FIXED))
    return PairedComparison.of(learned, fixed) if learned and fixed else None


def _why_learned(both: PairedComparison) -> str:
    """Why the default is what it is, as long as the numbers allow it."""
    gains = [fmean(each) for each in both.differences.values() if each]
    if not gains or min(gains) <= -MIN_DIFFERENCE or max(gains) >= MIN_DIFFERENCE:
        return ""
    return (
        " The library learns the deviation by default, as published, because at no size the mean difference reaches "
        f"{MIN_DIFFERENCE}. This was measured for FM only, on this data set, with hard labels."
    )


def _path(settings: PaperSettings, model: str) -> Path:
    return settings.results / PART / f"{model}.json"
