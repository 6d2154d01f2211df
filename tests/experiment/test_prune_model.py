"""prune_model on a module with dict inputs, dense inputs and sample weights, and the batches it is fed with."""

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from thresher.compact.embedding import CompactEmbedding
from thresher.data.batches.batches import TensorBatches
from thresher.data.batches.split_batches import SplitBatches
from thresher.errors import AttachError, ConfigError, DataError
from thresher.experiment.prune_model import prune_model
from thresher.search.schedule import SearchConfig
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig
from thresher.training.row_adam import RowAdam


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.users, self.items = nn.Embedding(20, 8), nn.Embedding(20, 8, sparse=True)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.1)
        self.twins = nn.Embedding(20, 8)
        self.twins.weight = self.items.weight
        self.out = nn.Linear(2, 1)

    def forward(self, ids, price):
        product = self.users(ids["user"]) * (self.items(ids["item"]) + self.twins(ids["item"]))
        return self.out(torch.stack([product.sum(1), price], dim=1))


def batches(seed, shuffle=None, weights=True):
    draw = torch.Generator().manual_seed(seed)
    ids = {name: torch.randint(20, (512,), generator=draw) for name in ("user", "item")}
    labels = ids["user"] % 2 == ids["item"] % 2
    price, sample_weights = torch.rand(512, generator=draw), torch.rand(512, generator=draw) + 0.5
    return TensorBatches((ids, price), labels, 64, seed=shuffle, weights=sample_weights if weights else None)


DATA = SplitBatches(train=batches(1, shuffle=0), validation=batches(2), test=batches(3))
FAST = OptimizerConfig(learning_rate=0.02)


def test_tensor_batches_shuffle_by_epoch_and_can_start_anywhere():
    source = batches(1, shuffle=5)
    assert (source.num_rows, len(source)) == (512, 8)
    first, again, other = ([b.labels for b in source.epoch(e)] for e in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert torch.equal(next(source.epoch(1, start=3)).labels, first[3])
    for batch in source.epoch(1):
        matches = batch.inputs[0]["user"] % 2 == batch.inputs[0]["item"] % 2
        assert torch.equal(matches.float(), batch.labels)
        assert batch.weights.shape == batch.inputs[1].shape == batch.labels.shape
    assert torch.equal(torch.cat([b.labels for b in batches(1).epoch(7)]), batches(1).labels)


def test_large_tables_are_updated_by_rows(monkeypatch):
    monkeypatch.setattr("thresher.training.optimizers.ROWS_FROM_ENTRIES", 100)
    stepped = []
    step = RowAdam.step
    monkeypatch.setattr(RowAdam, "step", lambda self: (stepped.append(self.param_groups[0]["name"]), step(self))[1])
    model = Model()
    result = prune_model(
        model,
        DATA,
        "50%",
        search=SearchConfig(warmup_epochs=1, plan_epochs=2, clock_steps=4, optimizer=FAST),
        training=TrainingConfig(max_epochs=2, optimizer=FAST),
        teacher_share=0.0,
    )
    assert len(stepped) >= 4 * len(DATA.train)  # dense training and search
    assert result.pruned["50%"].num_parameters == 160
    assert (model.users.sparse, model.items.sparse) == (False, True)


def test_prune_model_leaves_the_model_alone_and_gives_it_back_at_each_size(tmp_path):
    model = Model()
    before = copy.deepcopy(model.state_dict())
    result = prune_model(
        model,
        DATA,
        ["50%", "40"],
        search=SearchConfig(warmup_epochs=2, plan_epochs=4, clock_steps=4, optimizer=FAST),
        training=TrainingConfig(max_epochs=20, optimizer=FAST),
        folder=tmp_path,
    )
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert type(model.users) is nn.Embedding
    assert [(table.name, table.other_names) for table in result.tables] == [("users", ()), ("items", ("twins",))]
    assert (result.dense.num_parameters, result.dense.storage_bytes) == (320, 1280)
    sizes = {budget: trained.num_parameters for budget, trained in result.pruned.items()}
    assert sizes == {"50%": 160, "40": 40}
    assert isinstance(result.pruned["40"].model.items, CompactEmbedding)
    assert result.pruned["50%"].test.auc > 0.9
    assert result.pruned["40"].storage_bytes < result.pruned["50%"].storage_bytes < result.dense.storage_bytes
    assert {path.name for path in tmp_path.iterdir()} == {"dense", "tickets", "retrained", "inputs.json"}


def test_distillation_is_used_where_the_smallest_size_gains(tmp_path):
    search = SearchConfig(warmup_epochs=2, plan_epochs=4, clock_steps=2, optimizer=FAST)
    training = TrainingConfig(max_epochs=4, optimizer=FAST)
    aucs, chosen = {}, {}
    told = {
        "hard-labels": (0.0, None),
        "soft-labels-1": (1.0, False),
        "soft-labels-1-in-search": (1.0, True),
        "open": (None, None),
    }
    for name, (share, distill_search) in told.items():
        result = prune_model(
            Model(), DATA, "50%,40", search=search, training=training, teacher_share=share,
            distill_search=distill_search, folder=tmp_path / name, effort="paper",
        )  # fmt: skip
        found, chosen[name] = result.pruned, str(result.distillation)
        aucs[name] = [found[budget].fit.validation.auc for budget in ("50%", "40")]
        assert all(trained.test is not None for trained in found.values())
    ways = ["hard-labels", "soft-labels-1", "soft-labels-1-in-search"]
    assert [chosen[name] for name in ways] == ways
    assert len({tuple(aucs[name]) for name in ways}) == 3
    taught_helps = aucs["soft-labels-1"][1] > aucs["hard-labels"][1]
    search_helps = taught_helps and aucs["soft-labels-1-in-search"][1] > aucs["soft-labels-1"][1]
    assert chosen["open"] == ways[taught_helps + search_helps]
    assert aucs["open"] == aucs[chosen["open"]]
    with pytest.raises(ConfigError, match="no distillation"):
        prune_model(Model(), DATA, "50%", with_dense=False, distill_search=True)
    with pytest.raises(ConfigError, match="no teacher"):
        prune_model(Model(), DATA, "50%", with_dense=False, teacher_share=0.5)


def test_models_of_the_user_as_teachers(tmp_path):
    class Knows(nn.Module):
        def __init__(self, slope):
            super().__init__()
            self.slope = nn.Parameter(torch.tensor(slope))

        def forward(self, ids, price):
            return self.slope * ((ids["user"] % 2 == ids["item"] % 2).float() - 0.5)

    class Squashed(Knows):
        def forward(self, ids, price):
            return torch.sigmoid(super().forward(ids, price))

    blind = replace(DATA, train=DATA.train.with_labels(np.full(512, 0.5, np.float32)))  # there is nothing to learn
    config = SearchConfig(warmup_epochs=2, plan_epochs=4, clock_steps=2, optimizer=FAST)
    taught = partial(
        prune_model, Model(), blind, "50%", search=config, training=TrainingConfig(max_epochs=6, optimizer=FAST),
        distill_search=True,
    )  # fmt: skip
    result = taught(teachers=[Knows(1.0), Knows(6.0)], with_dense=False)
    assert str(result.distillation) == "soft-labels-1-in-search"
    assert result.dense is None
    assert result.pruned["50%"].test.auc > 0.9
    against = taught(teachers=[Knows(4.0), Knows(-4.0)], teacher_share=1.0, with_dense=False)  # their mean says nothing
    assert abs(against.pruned["50%"].test.auc - 0.5) < 0.1
    # work of others is found in the folder, but it is not taken for one's own
    again = taught(teachers=[Knows(6.0)], teacher_share=1.0, with_dense=False, folder=tmp_path)
    other = taught(teachers=[Knows(-6.0)], teacher_share=1.0, with_dense=False, folder=tmp_path)
    assert again.pruned["50%"].test.auc > 0.9
    assert other.pruned["50%"].test.auc < 0.4
    # of labels that say nothing the dense model learns nothing, and it has a part in the mean
    beside = taught(teachers=[Knows(6.0)], teacher_share=1.0)
    sure, unsure = (
        float(torch.sigmoid(result.pruned["50%"].model(*next(DATA.test.epoch(1)).inputs)).detach().std())
        for result in (again, beside)
    )
    assert 0.3 * sure < unsure < 0.75 * sure
    with pytest.raises(ConfigError, match="teachers are given, but teacher_share is 0"):
        taught(teachers=[Knows(1.0)], teacher_share=0.0, distill_search=None)
    with pytest.warns(UserWarning, match="Squashed returns only values between 0 and 1"):
        taught(teachers=[Squashed(1.0)], with_dense=False)


def test_a_model_of_another_ticket_is_not_taken_for_the_new_ones(tmp_path):
    """A new search finds a new mask of the same size, which the settings of retraining do not tell from the old."""
    first = SearchConfig(warmup_epochs=2, plan_epochs=4, clock_steps=2, optimizer=FAST)
    prune = partial(
        prune_model, Model(), DATA, "40", training=TrainingConfig(max_epochs=2, optimizer=FAST), with_dense=False
    )
    prune(search=first, folder=tmp_path)
    longer = replace(first, plan_epochs=6)
    with pytest.raises(ConfigError, match=r"tickets/checkpoint.* \(plan_epochs 4.* → 6\)\. Use the same"):
        prune(search=longer, folder=tmp_path)
    (tmp_path / "tickets" / "checkpoint.safetensors").unlink()
    with pytest.raises(
        ConfigError, match=r"retrained/40/hard-labels/checkpoint.* another model or ticket.* delete the file"
    ):
        prune(search=longer, folder=tmp_path)
    (tmp_path / "retrained" / "40" / "hard-labels" / "checkpoint.safetensors").unlink()
    table = prune(search=longer, folder=tmp_path).pruned["40"].model.users
    afresh = prune(search=longer).pruned["40"].model.users
    assert torch.equal(table.positions(), afresh.positions())
    assert torch.equal(table.values, afresh.values)


def test_work_on_another_model_or_other_rows_is_not_resumed(tmp_path):
    class Doubled(nn.Module):
        def __init__(self):
            super().__init__()
            self.users = nn.Embedding(20, 8, _weight=torch.ones(20, 8))
            self.dropout = nn.Dropout(0.1)

        def forward(self, ids, price):
            return self.dropout(self.users(ids["user"])).sum(1) + price

        def extra_repr(self):
            return f"activation={partial}, made={object()}"  # the latter is printed with its place in memory

    def prune(model, data=DATA):
        prune_model(
            model, data, "50%", with_dense=False, search=SearchConfig(warmup_epochs=1, plan_epochs=1, clock_steps=2),
            training=TrainingConfig(max_epochs=1), folder=tmp_path,
        )  # fmt: skip

    with pytest.raises(AttachError):
        prune(nn.Linear(2, 1))
    prune(Doubled())  # nothing had been done
    prune(Doubled())
    other = Doubled()
    other.dropout.p = 0.2
    with pytest.raises(ConfigError, match=r"another model or other rows \(changed: model\)"):
        prune(other)
    with pytest.raises(ConfigError, match=r"changed: training rows\)\. Choose another folder, or delete"):
        prune(Doubled(), replace(DATA, train=batches(1, shuffle=1)))
    with pytest.raises(ConfigError, match="changed: validation rows"):
        prune(Doubled(), replace(DATA, validation=batches(5)))
    weights = Doubled()
    weights.users.weight.data[3, 4] = 2.0
    with pytest.raises(ConfigError, match="with other initial weights"):
        prune(weights)


def test_the_dense_model_is_trained_only_if_asked_for():
    result = prune_model(
        Model(),
        DATA,
        "25%",
        where="users",
        search=SearchConfig(warmup_epochs=1, plan_epochs=1, clock_steps=2),
        training=TrainingConfig(max_epochs=1),
        with_dense=False,
    )
    assert result.dense is None
    assert [table.name for table in result.tables] == ["users"]
    assert result.pruned["25%"].num_parameters == 40


def test_a_model_without_tables_is_refused_before_anything_is_trained():
    with pytest.raises(AttachError, match="no table to prune"):
        prune_model(nn.Linear(2, 1), DATA, "25%")


def test_a_model_that_reads_the_weights_of_its_tables():
    class Reading(Model):
        def forward(self, ids, price):
            scores = self.users(ids["user"]) @ self.items.weight.T
            chosen = scores.gather(1, ids["item"].unsqueeze(1)).squeeze(1)
            return self.out(torch.stack([chosen, price.to(self.users.weight.dtype)], dim=1))

    result = prune_model(
        Reading(),
        DATA,
        "25%",
        search=SearchConfig(warmup_epochs=4, plan_epochs=4, clock_steps=2, optimizer=FAST),
        training=TrainingConfig(max_epochs=8, optimizer=FAST),
        teacher_share=0.0,
    )
    pruned = result.pruned["25%"]
    assert isinstance(pruned.model.items, CompactEmbedding)
    assert pruned.num_parameters == 80
    assert pruned.fit.validation.auc > 0.75


def test_a_model_that_uses_methods_of_its_tables_is_refused_before_it_is_searched(tmp_path):
    class Table(nn.Embedding):
        def all_rows(self):
            return self.weight

    class Reading(Model):
        def __init__(self):
            super().__init__()
            self.users = Table(20, 8)

        def forward(self, ids, price):
            return super().forward(ids, price) + self.users.all_rows().mean()

    with pytest.raises(ConfigError, match=r"Reading does not run with the compact tables.*no attribute 'all_rows'"):
        prune_model(Reading(), DATA, "25%", folder=tmp_path)
    assert not (tmp_path / "tickets").exists()


def test_what_a_model_holds_beside_tensors_stays_as_it_is(tmp_path):
    class WithSettings(Model):
        def __init__(self):
            super().__init__()
            self.settings = {"version": 3}

        def get_extra_state(self):
            return self.settings

        def set_extra_state(self, state):
            raise AssertionError("nothing but tensors is rewound")

    def prune():
        return prune_model(
            WithSettings(),
            DATA,
            "25%",
            with_dense=False,
            search=SearchConfig(warmup_epochs=1, plan_epochs=1, clock_steps=2),
            training=TrainingConfig(max_epochs=1),
            folder=tmp_path,
        ).pruned["25%"]

    found, taken_up = prune(), prune()
    assert found.num_parameters == 80
    assert found.model.settings == taken_up.model.settings == {"version": 3}
    assert found.test == taken_up.test


def test_a_model_that_returns_probabilities_causes_a_warning():
    class WithSigmoid(Model):
        def forward(self, ids, price):
            return torch.sigmoid(super().forward(ids, price))

    with pytest.warns(UserWarning, match=r"WithSigmoid returns only values between 0 and 1.*torch.logit") as told:
        prune_model(
            WithSigmoid(),
            DATA,
            "25%",
            teacher_share=0.0,
            search=SearchConfig(warmup_epochs=1, plan_epochs=1, clock_steps=2),
            training=TrainingConfig(max_epochs=1),
        )
    assert told[0].filename == __file__  # the line that gave the model


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labels": torch.tensor([0.0, 2.0, 1.0])}, "between 0 and 1"),
        ({"labels": torch.tensor([0.0, torch.nan, 1.0])}, "between 0 and 1"),
        ({"weights": torch.ones(2)}, r"weights have shape \[2\]"),
        ({"weights": torch.tensor([1.0, torch.nan, 1.0])}, "weights must be 0 or more"),
        ({"weights": torch.tensor([1.0, torch.inf, 1.0])}, "weights must be 0 or more"),
        ({"weights": torch.tensor([1.0, -1.0, 1.0])}, "weights must be 0 or more"),
        ({"batch_size": -5}, "batch_size is -5"),
    ],
)
def test_batches_that_cannot_be_trained_on_are_refused(changed, message):
    given = {"inputs": (torch.arange(3),), "labels": torch.zeros(3), "batch_size": 2, "weights": None} | changed
    with pytest.raises(DataError, match=message):
        TensorBatches(**given)


@pytest.fixture(scope="module")
def pruned():
    return prune_model(
        Model(),
        DATA,
        ["50%", "20%"],
        search=SearchConfig(plan_epochs=1, clock_steps=4, optimizer=FAST),
        training=TrainingConfig(max_epochs=2, optimizer=FAST),
        teacher_share=0.0,
    )


def test_results_print_as_a_table(pruned):
    lines = str(pruned).splitlines()
    (half,) = [line for line in lines if line.startswith("50%")]
    assert half.split()[1] == "160"
    assert f"{pruned.pruned['50%'].test.auc:.4f}" in half
    assert [line.split()[0] for line in lines if line.startswith(("dense", "50%", "20%"))] == ["dense", "50%", "20%"]
    assert f"{pruned.dense.test.auc:.4f}" in pruned._repr_html_()
    assert pruned.frontier.points[0].bundle_bytes == pruned.pruned["50%"].model_bytes


@pytest.mark.parametrize("looks", [True, False])
def test_progress_is_shown_where_a_person_looks(monkeypatch, capsys, looks):
    monkeypatch.setattr("thresher.report.progress_display._somebody_looks", lambda: looks)
    prune_model(
        Model(),
        DATA,
        "50%",
        search=SearchConfig(plan_epochs=1, clock_steps=4, optimizer=FAST),
        training=TrainingConfig(max_epochs=1, optimizer=FAST),
        with_dense=False,
    )
    assert ("retrain 50%: done" in capsys.readouterr().err) == looks
