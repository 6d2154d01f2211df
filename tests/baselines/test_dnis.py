"""DNIS: a soft mask learned on validation rows decides, with the weights, which entries a budget keeps."""

import pytest
import torch

from thresher.baselines.dnis import DnisConfig, DnisEmbedding
from thresher.errors import BudgetError, ConfigError

CONFIG = DnisConfig(embedding_dim=8, num_blocks=4)


def test_budgets_are_exact_and_noise_fields_get_less(planted, tmp_path):
    tickets = planted.search(CONFIG, ["20%", "100"], folder=tmp_path)
    assert [ticket.num_parameters for ticket in tickets] == [int(0.2 * planted.num_features * 8), 100]
    signal, noise = planted.kept_by_kind(tickets[0].sizes()["embedding"])
    assert signal > 2 * noise
    fresh, model = planted.model(CONFIG), planted.model(CONFIG, seed=9)
    tickets[0].apply_(model)
    assert torch.equal(model.embedding.values, fresh.embedding.weight[tickets[0].masks["embedding"]])


def test_a_search_killed_in_an_epoch_ends_the_same(planted, killed_and_resumed):
    (resumed,) = killed_and_resumed(CONFIG, ["100"], killed_in=3)
    (whole,) = planted.search(CONFIG, ["100"])
    assert torch.equal(whole.masks["embedding"], resumed.masks["embedding"])
    assert torch.equal(whole.final.values["embedding"], resumed.final.values["embedding"])


def test_vectors_scores_counts_and_bytes_by_hand():
    torch.manual_seed(0)
    table = DnisEmbedding((2, 3), DnisConfig(embedding_dim=2, num_blocks=2), feature_counts=[50, 1, 20, 10, 19])
    assert table.block_of_feature.tolist() == [0, 1, 1, 1, 1]
    with torch.no_grad():
        table.soft_mask.copy_(torch.tensor([[1.0, 0.5], [-2.0, 0.0]]))
    expected = table.weight * torch.tensor([[1.0, 0.5]] + [[-2.0, 0.0]] * 4)
    assert torch.equal(table(torch.arange(5)), expected)
    assert torch.equal(table.scores(), expected.abs())
    assert table.num_parameters() == 10
    assert table.storage_bytes() == (10 + 4) * 4 + 5
    table(torch.tensor([3])).sum().backward()
    torch.testing.assert_close(table.soft_mask.grad, torch.stack([torch.zeros(2), table.weight[3].detach()]))


def test_rows_never_seen_in_training_are_kept_last():
    table = DnisEmbedding((2, 2), DnisConfig(embedding_dim=2, num_blocks=2), feature_counts=[9, 0, 4, 0])
    table(torch.arange(4))  # a validation row may have features that training rows have not
    scores = table.scores()
    assert scores[[1, 3]].eq(-torch.inf).all()
    assert torch.equal(scores[[0, 2]], table.weight[[0, 2]].abs())


def test_impossible_settings_are_refused(planted):
    with pytest.raises(ConfigError, match="num_blocks"):
        DnisConfig(num_blocks=0)
    with pytest.raises(ConfigError, match="feature_counts"):
        DnisEmbedding((3,), CONFIG)
    with pytest.raises(BudgetError, match="above the"):
        planted.search(CONFIG, ["1M"])
