"""Methods without a search: the largest settings within a budget, found without training."""

from dataclasses import replace

import pytest
import torch

from thresher.data.batches.split_batches import SplitBatches
from thresher.embeddings.method_registry import build_embedding
from thresher.embeddings.uniform import UniformConfig
from thresher.errors import BudgetError, ConfigError, FormatError, ThresherError
from thresher.experiment.retrain import retrain_ticket
from thresher.models.fm import DeepFmConfig
from thresher.models.model_registry import build_model
from thresher.search.budget import Budget
from thresher.search.find_tickets import find_tickets
from thresher.search.immediate import largest_within
from thresher.search.ticket_files import load_mask_ticket, load_ticket
from thresher.training.fit import TrainingConfig

SIZES = (40, 60)  # 100 features


def deepfm(config, field_sizes=SIZES):
    torch.manual_seed(0)
    return build_model(build_embedding(field_sizes, config), DeepFmConfig())


@pytest.mark.parametrize(
    ("budget", "embedding_dim"),
    [("699", 6), ("700", 7), ("6400", 64), ("100k", 64), ("2%", 1), ("50%", 32), ("2.4KB", 6), ("2.399KB", 5)],
)
def test_takes_the_widest_table_that_fits(budget, embedding_dim):
    fitted = largest_within(Budget.parse(budget), UniformConfig(embedding_dim=64), SIZES)
    assert fitted == UniformConfig(embedding_dim=embedding_dim)


def test_a_budget_below_the_smallest_table_is_refused_with_what_that_needs():
    with pytest.raises(BudgetError, match="embedding_dim = 1: 100 parameters, 400 bytes"):
        largest_within(Budget.parse("99"), UniformConfig(), SIZES)


def test_tickets_come_largest_first_are_stored_and_retrained_at_their_own_width(small_table, tmp_path):
    data = SplitBatches.of(small_table, 256, seed=0)
    sizes = small_table.schema.field_sizes
    num_features = sum(sizes)
    config = UniformConfig(embedding_dim=16)
    budgets = [2 * num_features, 5 * num_features + 3]
    tickets = find_tickets(deepfm(config, sizes), data, budgets, folder=tmp_path)
    assert [ticket.embedding.embedding_dim for ticket in tickets] == [5, 2]
    assert [load_ticket(tmp_path / ticket.budget.slug) for ticket in tickets] == list(tickets)
    with pytest.raises(FormatError, match="expected a MaskTicket"):
        load_mask_ticket(tmp_path / tickets[0].budget.slug)

    model = deepfm(tickets[1].embedding_config(config), sizes)
    start = {name: value.clone() for name, value in model.state_dict().items()}
    tickets[1].apply_(model)
    assert all(torch.equal(value, start[name]) for name, value in model.state_dict().items())
    trained = retrain_ticket(tickets[1], model, data, TrainingConfig(max_epochs=1, patience=1))
    assert trained.num_parameters == tickets[1].num_parameters == 2 * num_features
    assert trained.storage_bytes == tickets[1].storage_bytes == 8 * num_features


def test_other_settings_and_rewind_final_are_refused(small_table):
    data = SplitBatches.of(small_table, 256, seed=0)
    sizes = small_table.schema.field_sizes
    model = deepfm(UniformConfig(embedding_dim=4), sizes)
    (ticket,) = find_tickets(model, data, "50%")
    with pytest.raises(ThresherError, match="embedding_config"):
        ticket.apply_(model)
    with pytest.raises(ConfigError, match="has none"):
        replace(ticket, embedding=UniformConfig(embedding_dim=4)).apply_(model, rewind="final")
