"""What the defaults rest on: one setting of the search or of retraining changed at a time, judged on validation.

MovieLens-1M, FM, tickets retrained on labels alone. Settings that matter only after the search share it, and the test
split is not read: these are the numbers choices are made by.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from made_with import made_with
from paper.experiments import digest, load_experiment
from paper.page import command, made_from, mean_sd, not_run_yet, table
from paper.settings import PaperSettings
from paper.stored import so_far, write_result
from paper.variants import DEFAULT, VARIANTS, Variant
from paper.verdicts import by_seed, is_ahead, signed
from thresher.config import override
from thresher.data.encoded_table import EncodedTable
from thresher.data.split_batches import SplitBatches
from thresher.embeddings.uniform import UniformConfig
from thresher.files import read_json
from thresher.models.base import CtrModel
from thresher.retrain import retrain_ticket
from thresher.runs import Run, RunConfig
from thresher.stages import batches, encode_data, new_model, search
from thresher.teaching import BY_LABELS
from thresher.tickets.ticket import MaskTicket, kept_weights
from thresher.training.fit import TrainingConfig
from thresher.training.loop import train_epoch
from thresher.training.optimizers import build_optimizer

TITLE = "What the defaults rest on"
PART = "ablation"
EXPERIMENT = "movielens-1m/fm/pep-plan"
BUDGETS = ("20k", "6541")
QUICK_VARIANTS = 3


def run(settings: PaperSettings) -> None:
    base = replace(load_experiment(settings, EXPERIMENT), budgets=BUDGETS, teacher_share=0.0)
    path = _path(settings)
    for seed in settings.seeds:
        for variant in VARIANTS[:QUICK_VARIANTS] if settings.quick else VARIANTS:
            if str(seed) not in so_far(settings, path, base, variants={})["variants"].get(variant.name, {}):
                made = made_with()
                aucs = validation_aucs(settings, replace(base, seed=seed), variant)
                content = so_far(settings, path, base, variants={})
                content["variants"].setdefault(variant.name, {})[str(seed)] = aucs
                write_result(path, content, made)
                print(f"{variant.name} seed {seed}: {aucs}", flush=True)


def validation_aucs(settings: PaperSettings, base: RunConfig, variant: Variant) -> dict[str, float]:
    """Budget → validation AUC of the retrained ticket."""
    config = override(replace(base, data=settings.data(base.data.source)), variant.changes)
    searched = replace(config, training=TrainingConfig(batch_size=config.training.batch_size), rewind="initial")
    folder = settings.temporary / PART / f"{digest(searched)}{variant.slug}"
    with Run.started(folder, searched, resume=True) as found, variant.put_in():
        table = encode_data(found)
        data = replace(batches(found, table), test=None)
        tickets = search(found, table, data, BY_LABELS)
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


def page(settings: PaperSettings) -> str:
    if not _path(settings).exists():
        return not_run_yet(PART)
    content = read_json(_path(settings))
    variants: dict[str, dict[str, Any]] = content["variants"]
    rows = []
    for variant in (variant for variant in VARIANTS if variant.name in variants):
        own = variants[variant.name]
        if variant.name == DEFAULT:
            told = [mean_sd([aucs[budget] for aucs in own.values()]) for budget in BUDGETS]
            rows.append([f"**{DEFAULT}**", *told])
        else:
            gains = [signed(_gains(variants, own, budget)) for budget in BUDGETS]
            rows.append([f"{variant.about}: `{variant.name}`", *gains])
    return "\n\n".join(
        [
            f"""One setting changed at a time; MovieLens-1M, FM, D = 64, by labels, *validation* AUC: the defaults' own,
and below it each change's difference, paired over seeds. Made by {command(PART)}. Granularities have a table of their
own, and so has [the teacher](#the-dense-model-as-a-teacher). Rows that name no setting put into the search what the
library has none for (`benchmarks/paper/variants.py`): plans that fall at another pace between the same ends, and a
threshold that is hard once less than a fifth of a batch's entries is left. Soft thresholds on a cubic plan are a row
here; hard ones throughout, on a cubic plan, are `gradual-magnitude` among the methods at equal parameters.""",
            table(["change", *BUDGETS], rows),
            _verdict(variants),
            made_from(content),
        ]
    )


def _gains(variants: dict[str, dict[str, Any]], own: dict[str, Any], budget: str) -> list[float]:
    """What a change gains at one budget, for each seed both have."""
    return by_seed(*({seed: aucs[budget] for seed, aucs in side.items()} for side in (own, variants.get(DEFAULT, {}))))


def _verdict(variants: dict[str, dict[str, Any]]) -> str:
    """Which changes are ahead of the defaults at one size and not behind at the other, and which are behind."""
    better, worse = [], []
    for name, own in variants.items():
        gains = [gains for budget in BUDGETS if name != DEFAULT and (gains := _gains(variants, own, budget))]
        if any(is_ahead([-gain for gain in each]) for each in gains):
            worse.append(f"`{name}`")
        elif any(map(is_ahead, gains)):
            better.append(f"`{name}`")
    told = f"Ahead of the defaults: {', '.join(better)}" if better else "No change is ahead of the defaults"
    return f"{told}. Behind at one size or both: {', '.join(worse) or 'none'}. All others are level."


def _path(settings: PaperSettings) -> Path:
    return settings.results / PART / "fm.json"
