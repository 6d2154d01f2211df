"""The ablation: every variant changes one setting, and differences are paired by seed."""

import pytest
import torch

from paper.parts import ablation
from paper.settings import EXPERIMENTS
from paper.variants import DEFAULT, VARIANTS, AcceleratingPlan, DeceleratingPlan, Variant, hard_when_late
from thresher._internal.settings import load_toml, override
from thresher._internal.storage.files import read_json, write_json
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.pep import PepConfig
from thresher.embeddings.thresholds import soft_threshold
from thresher.experiment.config import RunConfig
from thresher.experiment.run.run_models import new_model
from thresher.search.find_tickets import find_tickets
from thresher.search.schedule import Plan, SearchConfig
from thresher.search.searcher import Searcher
from thresher.search.ticket import kept_weights
from thresher.training.epoch import train_epoch
from thresher.training.optimizers import build_optimizer


@pytest.mark.parametrize("model", ablation.BUDGETS)
def test_every_variant_changes_one_thing_and_has_its_own_name(model):
    base = load_toml(RunConfig, EXPERIMENTS / f"movielens-1m/{model}/pep-plan.toml")
    variants = VARIANTS[model]
    names = [variant.name for variant in variants]
    assert names[0] == DEFAULT
    assert len(set(names)) == len(names)
    for variant in variants[1:]:
        patches = (variant.plan is not Plan) + (variant.thresholding is not soft_threshold)
        assert len(variant.changes) + bool(variant.rewind_epochs) + patches == 1
        assert not variant.changes or override(base, variant.changes) != base


def test_patched_searches_have_their_own_folders():
    slugs = [variant.slug for variant in VARIANTS["fm"] if variant.slug]
    assert len(set(slugs)) == len(slugs) == 4


@pytest.mark.parametrize(("plan", "half_way"), [(DeceleratingPlan, 316), (Plan, 1000), (AcceleratingPlan, 3162)])
def test_plans_have_the_same_ends_and_another_pace(plan, half_way):
    fall = plan(num_entries=10_000, smallest=100, num_steps=1000)
    assert [fall.num_kept(step) for step in (0, 500, 1000, 1001)] == [10_000, half_way, 100, 100]


def test_a_late_threshold_is_hard():
    values, threshold = torch.linspace(-1, 1, 101), torch.tensor(0.5)
    torch.testing.assert_close(hard_when_late(values, threshold), soft_threshold(values, threshold))
    late = hard_when_late(values, torch.tensor(0.9))
    torch.testing.assert_close(late, values * (values.abs() > 0.9))


def test_a_search_uses_the_patched_functions(small_table):
    config = RunConfig(
        effort="paper",
        embedding=PepConfig(embedding_dim=8),
        search=SearchConfig(warmup_epochs=1, plan_epochs=1),
        budgets=("100",),
    )
    called = []

    def recorded(values, threshold):
        called.append(len(values))
        return soft_threshold(values, threshold)

    with Variant(topic="", plan=DeceleratingPlan, thresholding=recorded).patched():
        model = new_model(config, small_table, config.embedding)
        assert type(Searcher(model, config.budgets, steps=10).plan) is DeceleratingPlan
        model(next(iter(SplitBatches.of(small_table, 256, seed=1).train.epoch(1))).inputs[0])
    assert called
    assert type(Searcher(model, config.budgets, steps=10).plan) is Plan


def test_differences_are_paired_and_the_verdict_lists_better_changes(settings):
    aucs = {
        DEFAULT: {"0": (0.850, 0.840), "1": (0.854, 0.844)},
        "search.plan_epochs=40": {"0": (0.852, 0.842), "1": (0.857, 0.845)},  # better at both sizes
        "search.plan_epochs=10": {"1": (0.855, 0.834)},  # one seed, better at one size only
    }
    variants = {
        name: {seed: dict(zip(ablation.BUDGETS["fm"], pair, strict=True)) for seed, pair in seeds.items()}
        for name, seeds in aucs.items()
    }
    write_json(settings.results / "ablation/fm.json", {"variants": variants})
    text = ablation.page(settings)
    assert "| 0.8520 ± 0.0028 (2) | 0.8420 ± 0.0028 (2) |" in text
    assert "| plan: `search.plan_epochs=40` | +0.0025 ± 0.0007 (2) | +0.0015 ± 0.0007 (2) |" in text
    assert "| plan: `search.plan_epochs=10` | +0.0010 (1) | -0.0100 (1) |" in text
    verdict = (
        "Better than the defaults at one size or both: `search.plan_epochs=40` (2 seeds). "
        "Worse at one size or both: `search.plan_epochs=10` (1 seed)."
    )
    assert verdict in text
    assert "`rewind=final`" in text.split("Not run yet: ")[1]


def test_early_weights_equal_the_weights_during_the_warmup_of_a_search(small_table):
    config = RunConfig(
        effort="paper",
        embedding=PepConfig(embedding_dim=8),
        search=SearchConfig(warmup_epochs=2, plan_epochs=1, clock_steps=5),
        budgets=("100",),
    )
    data = SplitBatches.of(small_table, 256, seed=1)
    searched = new_model(config, small_table, config.embedding)
    (ticket,) = find_tickets(searched, data, config.budgets, config.search, seed=config.seed)

    model = new_model(config, small_table, config.embedding)  # a search prunes nothing during warm-up
    train_epoch(model, data.train, build_optimizer(model, config.search.optimizer), 1)

    early = kept_weights(ablation.early_model(config, small_table, data, 1), ticket.masks)
    for name, mask in ticket.masks.items():
        passed = model.get_submodule(name).weight.detach()[mask]
        torch.testing.assert_close(early.values[name], passed)
        assert not torch.equal(early.values[name], ticket.initial.values[name])
    assert set(early.state) == set(ticket.initial.state)


@pytest.mark.slow
def test_the_ablation_runs_from_start_to_page(settings):
    ablation.run(settings)
    path = settings.results / "ablation/fm.json"
    before, runs = path.read_bytes(), list((settings.temporary / ablation.PART).iterdir())
    ablation.run(settings)  # results are not computed twice
    assert path.read_bytes() == before
    variants = read_json(path)["variants"]
    assert list(variants) == [variant.name for variant in VARIANTS["fm"][: ablation.QUICK_VARIANTS["fm"]]]
    assert len({str(seeds) for seeds in variants.values()}) == len(variants)  # every variant has an effect
    assert list(read_json(path.with_name("deepfm.json"))["variants"]) == [DEFAULT, "model.dropout=0"]
    assert len(runs) == 4  # rewinding shares the search of the defaults
    assert "`embedding.learn_deviation=false`" in ablation.page(settings)
