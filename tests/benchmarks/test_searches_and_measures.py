"""Measurements and recorded searches behind the parts on thresholds, tickets and features."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from torch import nn

from paper import searches, trainings
from paper.figures.annotations import annotate_out_of_range
from paper.measures import AdamParts, frequency_groups, group_densities, swapped_share, threshold_parts
from paper.parts import frequency, granularity, interactions, lottery_ticket, thresholds
from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.experiment.config import RunConfig
from thresher.experiment.run.run_models import new_model
from thresher.search.find_tickets import find_tickets
from thresher.search.schedule import SearchConfig
from thresher.training.optimizers import OptimizerConfig

PARTS = (lottery_ticket, granularity, thresholds, interactions, frequency)


def tiny_config(**search) -> RunConfig:
    return RunConfig(
        effort="paper",
        embedding=PepConfig(embedding_dim=8),
        search=SearchConfig(clock_steps=5, **search),
        budgets=("500", "100"),
    )


# --- measures


@pytest.mark.parametrize("fused", [False, True])
def test_updates_of_adam_are_the_sum_of_loss_and_decay(fused):
    torch.manual_seed(0)
    parameter = nn.Parameter(torch.full((5, 3), -2.0))
    other = nn.Parameter(torch.zeros(2))
    groups = [{"params": [other]}, {"params": [parameter], "weight_decay": 0.1}]
    optimizer = torch.optim.Adam(groups, lr=0.01, fused=fused)
    parts = AdamParts(optimizer, parameter)
    for step in range(60):
        optimizer.zero_grad()
        ((parameter * torch.randn(5, 3)).sum() + other.sum() * step).backward()
        optimizer.step()
    moved = parameter.detach() - parts.start
    assert torch.allclose(parts.from_loss + parts.from_decay, moved, atol=1e-5)
    assert parts.from_loss.abs().min() > 1e-4  # both contribute
    assert parts.from_decay.min() > 1e-4  # decay pulls −2 towards 0


def test_without_gradient_only_decay_contributes_and_vice_versa():
    for decay, gradient in ((0.1, 0.0), (0.0, 1.0)):
        parameter = nn.Parameter(torch.full((4, 1), -1.0))
        parts = AdamParts(optimizer := torch.optim.Adam([parameter], weight_decay=decay), parameter)
        for _ in range(5):
            parameter.grad = torch.full((4, 1), gradient)
            optimizer.step()
        zero, total = (parts.from_loss, parts.from_decay) if decay else (parts.from_decay, parts.from_loss)
        assert not zero.any()
        assert torch.allclose(total, parameter.detach() + 1.0, atol=1e-6)


def test_swapped_share_counts_kept_entries_beyond_the_largest():
    weight = torch.tensor([[3.0, -2.0], [1.0, 0.5]])
    assert swapped_share(weight, torch.tensor([[True, True], [False, False]])) == 0
    assert swapped_share(weight, torch.tensor([[True, False], [False, True]])) == 0.5
    assert swapped_share(weight, torch.zeros(2, 2, dtype=torch.bool)) == 0


def test_group_densities_are_means_over_features_of_a_decade():
    counts = np.array([0, 1, 9, 10, 25_000, 10_000, 999])
    sizes = np.array([4, 0, 2, 4, 4, 2, 1])
    groups = frequency_groups(counts)
    assert groups.tolist() == [-1, 0, 0, 1, 4, 4, 2]
    found = group_densities(sizes, groups, embedding_dim=4)
    assert [group["features"] for group in found] == [2, 1, 1, 0, 2]
    assert [group["mean"] for group in found] == [0.25, 1.0, 0.25, 0.0, 0.75]
    assert found[0]["sd"] == pytest.approx(0.25)


def test_threshold_parts_of_a_plan_are_clock_and_deviation():
    torch.manual_seed(0)
    table = PepEmbedding([10, 10], PepConfig(embedding_dim=4))
    assert threshold_parts(table) is None  # before pruning starts
    table.seen.fill_(True)
    table.clock.fill_(-3.0)
    untouched = threshold_parts(table)
    assert untouched["swapped_share"] == 0
    assert untouched["kept"]["moved_by_loss"] == 0
    with torch.no_grad():
        table.deviation.normal_()
    parts = threshold_parts(table)
    assert parts["seen"]["raw_pressure"] == [-3.0] * 3
    assert parts["seen"]["raw_loss"] == pytest.approx(np.quantile(table.deviation.detach(), (0.05, 0.5, 0.95)))
    assert parts["kept"]["entries"] == table.num_parameters()
    assert parts["kept"]["moved_by_loss"] > 0
    assert parts["swapped_share"] > 0


# --- interactions, frequency


def test_interaction_matrix_is_the_mean_absolute_product():
    torch.manual_seed(0)
    sizes, vectors = [3, 4, 2], torch.randn(9, 5)
    seen = torch.tensor([0, 1, 1, 1, 1, 1, 0, 1, 1], dtype=torch.bool)
    matrix = interactions.interaction_matrix(vectors, sizes, seen)
    bounds = np.cumsum([0, *sizes])
    for f in range(3):
        for g in range(3):
            products = [
                abs(sum(float(vectors[a, d]) * float(vectors[b, d]) for d in range(5)))
                for a in range(bounds[f], bounds[f + 1])
                for b in range(bounds[g], bounds[g + 1])
                if seen[a] and seen[b]
            ]
            if f == g:
                assert np.isnan(matrix[f, g])
            else:
                assert matrix[f, g] == pytest.approx(sum(products) / len(products), rel=1e-5)


def test_strengths_before_and_after_have_the_same_scale():
    dense, pruned = [[None, 2.0], [2.0, None]], [[None, 3.0], [3.0, None]]
    seeds = [{"dense": dense, "pruned": {"25k": pruned}}, {"dense": pruned, "pruned": {"25k": pruned}}]
    assert np.nanmax(interactions._mean(seeds, None)) == 1
    assert np.nanmax(interactions._mean(seeds, "25k")) == pytest.approx((1.5 + 1) / 2)


def test_rank_correlation_shares_ranks_among_equal_values():
    generator = np.random.default_rng(0)
    counts, densities = generator.integers(1, 20, 200), generator.integers(0, 5, 200) / 4
    assert frequency.rank_correlation(counts, densities) == pytest.approx(spearmanr(counts, densities).statistic)
    assert frequency.rank_correlation(counts, counts**3) == pytest.approx(1)
    assert frequency.rank_correlation(counts, np.zeros(200)) == 0


def test_every_feature_is_in_the_density_histogram_once():
    counts, densities = np.array([1, 1, 15, 900_000]), np.array([0.0, 1.0, 0.5, 1.0])
    histogram = frequency.density_histogram(counts, densities)
    assert histogram.sum() == 4
    assert histogram[0, 0] == histogram[-1, 0] == histogram[-1, -1] == 1
    assert histogram[:, 4].tolist() == [0] * 8 + [1] + [0] * 7


def test_a_group_that_starts_below_one_is_explained():
    fallen, whole = ({"groups_by_epoch": [[{"mean": mean}]]} for mean in (0.7, 1.0))
    assert "the group of 1–9 rows is then 0.70" in frequency._first_epoch_text([fallen])
    assert not frequency._first_epoch_text([whole])
    assert not frequency._first_epoch_text([])


def test_threshold_parts_are_shown_at_the_first_epoch_below_a_kept_share():
    searched = {"kept": [100, 60, 40, 10], "parts": [None, {"kept": 1}, {"kept": 2}, {"kept": 3}]}
    assert thresholds.part_at(searched, 0.5) == {"kept": 2}
    assert thresholds.part_at(searched, 0.05) is None


def test_limits_of_the_lottery_ticket_figure_ignore_early_epochs():
    def trained(curve, best):
        return {"epochs": {"test_logloss": curve}, "test": {"logloss": best}}

    ticket = trained([2.0, *[0.6] * 8, *[0.5] * 11], best=2.0)  # the best epoch can be the first
    seed = {
        "dense": trained([0.48, 1.3], best=0.48),
        "budgets": {"2k": dict.fromkeys(lottery_ticket.REWINDS, ticket) | {"not retrained": trained([], best=0.49)}},
    }
    low, high = lottery_ticket.limits([seed], ["2k"], "logloss")
    assert 0.47 < low < 0.48
    assert 0.5 < high < 0.51
    short = seed | {"budgets": {"2k": seed["budgets"]["2k"] | {"initial": trained([0.7], best=0.7)}}}
    assert lottery_ticket.limits([short], ["2k"], "logloss")[1] > 0.7  # a short training counts in full


def test_lines_that_leave_the_frame_are_annotated():
    axes = Figure().subplots()
    axes.set_ylim(0, 1)
    annotate_out_of_range(axes, {"dense": [0.5, 2.0, 0.9, 1.3], "decay": [0.5, 3.0], "inside": [2.0, 0.5]})
    (note,) = axes.texts
    assert " ".join(note.get_text().split()) == "↑ dense: 1.30 at epoch 4 decay: 3.00 at epoch 2"
    assert note.xy == (3, 1)


# --- searches


@pytest.mark.parametrize("updates", ["dense", "rows"])
@pytest.mark.parametrize("warmup", [1.0, None])
def test_a_recorded_search_finds_the_tickets_of_the_library(small_table, tmp_path, updates, warmup):
    config = tiny_config(
        warmup_epochs=warmup, max_warmup_epochs=2, plan_epochs=2.0, optimizer=OptimizerConfig(updates=updates)
    )
    data = SplitBatches.of(small_table, 256, seed=1)
    found = searches.record_search(config, small_table, data, tmp_path)
    model = new_model(config, small_table, config.embedding)
    for ticket in find_tickets(model, data, config.budgets, config.search, seed=config.seed):
        watched = searches.load_mask_ticket(tmp_path / found["tickets"][str(ticket.budget)])
        for name, mask in ticket.masks.items():
            assert torch.equal(watched.masks[name], mask)
            assert torch.equal(watched.final.values[name], ticket.final.values[name])
        assert found["cuts"][str(ticket.budget)]["num_kept"] <= ticket.num_parameters + 6 * 8  # unknown features' rows
    last = found["records"][-1]
    assert last["thresholds"]["kept"]["raw_pressure"][0] == last["thresholds"]["kept"]["raw_pressure"][2]


def test_a_decay_search_is_recorded_until_its_last_epoch(small_table, tmp_path):
    rate = OptimizerConfig(threshold_decay=1e-5, threshold_learning_rate=0.25)
    config = replace(tiny_config(max_epochs=4, optimizer=rate), embedding=PepConfig(embedding_dim=8, pressure="decay"))
    found = searches.record_search(config, small_table, SplitBatches.of(small_table, 256, seed=1), tmp_path)
    assert [record["epoch"] for record in found["records"]] == [1, 2, 3, 4]
    first, last = (found["records"][at]["thresholds"]["seen"] for at in (0, -1))
    assert -15 < first["raw_pressure"][1] < last["raw_pressure"][1]
    # at the start value of the authors the gradient of the loss is almost zero
    assert abs(first["raw_loss"][1]) < 0.01 * (first["raw_pressure"][1] + 15)


def test_parts_without_results_draw_nothing(settings):
    for part in PARTS:
        assert part.draw(settings) == []
        assert part.page(settings) == "Not run yet."
        assert part.__name__.rpartition(".")[2] == part.PART


@pytest.mark.slow
def test_every_part_runs_from_start_to_page(small_table, settings, monkeypatch):
    monkeypatch.setattr(searches, "encoded", lambda settings, source: small_table)
    monkeypatch.setattr(searches, "DECAY_BUDGETS", dict.fromkeys(searches.SOURCES, ("10k", "5k")))
    monkeypatch.setattr(granularity, "GRANULARITIES", ("global", "feature-dimension"))
    monkeypatch.setattr(trainings, "QUICK_CURVE_EPOCHS", 1)
    for part in PARTS:
        part.run(settings)
        results = {path: path.read_bytes() for path in (settings.results / part.PART).glob("*.json")}
        assert results
        part.run(settings)  # results are not computed twice
        assert {path: path.read_bytes() for path in results} == results
        pictures = part.draw(settings)
        assert pictures
        assert all(path.stat().st_size > 1_000 for path in pictures)
        text = part.page(settings)
        assert "nan" not in text.lower().split()
        for path in pictures:
            assert path.suffix == ".svg" or path.name in text
