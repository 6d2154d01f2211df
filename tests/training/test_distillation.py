"""A dense model's predictions as labels: right rows, right mixture, and something to learn from them."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from thresher.data.batches.batches import Batches, TensorBatches
from thresher.data.batches.split_batches import SplitBatches
from thresher.errors import ConfigError, FormatError
from thresher.experiment.retrain import train_model
from thresher.training.distillation import SoftLabels, candidate_plans, check_distillation, choose_plan
from thresher.training.epoch import evaluate
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

IDS = torch.arange(60)
OPTIMIZER = OptimizerConfig(learning_rate=0.1, weight_decay=0.001)


class Weights(nn.Module):
    """One logit per id; a dropout layer shows whether it is asked in evaluation mode."""

    def __init__(self, logits):
        super().__init__()
        self.table = nn.Embedding.from_pretrained(logits.unsqueeze(1), freeze=False)
        self.dropout = nn.Dropout(0.9)

    def forward(self, ids):
        return self.dropout(self.table(ids)).squeeze(-1)


def tensor_batches(labels, **kwargs):
    return TensorBatches((IDS,), labels, 7, **kwargs)


@given(st.floats(0, 1), st.integers(0, 5))
def test_soft_labels_mix_labels_and_predictions_row_by_row(share, seed):
    draw = torch.Generator().manual_seed(seed)
    labels, logits = torch.randint(2, (60,), generator=draw).float(), torch.randn(60, generator=draw)
    teacher = Weights(logits).train()
    soft_labels = SoftLabels.from_teacher(teacher, tensor_batches(labels, seed=3), share)
    expected = (1 - share) * labels + share * torch.sigmoid(logits)
    np.testing.assert_allclose(soft_labels.labels, expected.numpy(), rtol=1e-6)
    assert teacher.training
    assert teacher.dropout.training
    data = soft_labels.relabel(SplitBatches(train=tensor_batches(labels, seed=3), validation=tensor_batches(labels)))
    for batch, plain in zip(data.train.epoch(2), tensor_batches(labels, seed=3).epoch(2), strict=True):
        assert torch.equal(batch.inputs[0], plain.inputs[0])
        torch.testing.assert_close(batch.labels, expected[batch.inputs[0]])
    assert all(set(batch.labels.tolist()) <= {0.0, 1.0} for batch in data.validation.epoch(0))


def test_batches_of_an_encoded_table_keep_their_order_and_settings(small_table, tmp_path):
    split = small_table.split("train")
    source = Batches(split, 64, seed=1, window=2048)
    numbered = np.linspace(0, 1, split.num_rows, dtype=np.float32)
    SoftLabels(numbered, 0.5).save(tmp_path / "labels.npy")
    relabelled = source.with_labels(SoftLabels.load(tmp_path / "labels.npy", 0.5).labels)
    place = {label: row for row, label in enumerate(numbered.tolist())}
    for batch, plain in zip(relabelled.epoch(4), source.epoch(4), strict=True):
        assert torch.equal(batch.inputs[0], plain.inputs[0])
        rows = [place[label] for label in batch.labels.tolist()]
        assert np.array_equal(split.labels[rows], plain.labels.numpy())
    in_order = torch.cat([batch.labels for batch in source.in_order(50).epoch(0)])
    assert np.array_equal(in_order.numpy(), split.labels)


def test_soft_labels_are_learned_where_labels_are_uninformative():
    draw = torch.Generator().manual_seed(0)
    truth = torch.randn(60, generator=draw) * 2
    noise = torch.randint(2, (60,), generator=draw).float()
    validation = tensor_batches((truth > 0).float())
    data = SplitBatches(train=tensor_batches(noise, seed=0), validation=validation)
    config = TrainingConfig(max_epochs=30, patience=30, average_decay=0, optimizer=OPTIMIZER)
    aucs = {}
    for share in (0.0, 1.0):
        model = Weights(torch.zeros(60))
        soft_labels = SoftLabels.from_teacher(Weights(truth), data.train, share)
        train_model(model, data, config, soft_labels=soft_labels)
        assert soft_labels.scale_decay(config.optimizer).embedding_weight_decay == pytest.approx(0.001 * (1 - share))
        aucs[share] = evaluate(model, validation).auc
        assert model.dropout.p == 0.9
    assert aucs[1.0] > 0.99
    assert aucs[0.0] < 0.8


def test_dropout_is_eased_by_the_share_while_training():
    model = nn.Sequential(
        nn.Dropout(0.4), nn.Dropout2d(0.2), nn.MultiheadAttention(4, 2, dropout=0.5), nn.LSTM(4, 4, 2, dropout=0.4)
    )

    def rates():
        return [model[0].p, model[1].p, model[2].dropout, model[3].dropout]

    with SoftLabels(np.zeros(3, np.float32), 0.75).scaled_dropout(model):
        assert rates() == pytest.approx([0.1, 0.05, 0.125, 0.1])
    assert rates() == [0.4, 0.2, 0.5, 0.4]


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ConfigError, match="teacher_share is"):
        SoftLabels.from_teacher(Weights(torch.zeros(60)), tensor_batches(torch.zeros(60)), share)


def test_missing_soft_labels_and_sources_without_relabelling_are_refused(tmp_path):
    with pytest.raises(FormatError, match=r"soft_labels\.npy does not exist"):
        SoftLabels.load(tmp_path / "soft_labels.npy", 0.5)

    class Own:
        num_rows = 60

        def __len__(self):
            return 1

        def epoch(self, epoch, start=0):
            return tensor_batches(torch.zeros(60)).epoch(epoch, start)

    with pytest.raises(ConfigError, match="Own does not support soft labels"):
        SoftLabels.from_teacher(Weights(torch.zeros(60)), Own(), 0.5)


def test_labels_of_another_number_of_rows_are_refused(small_table):
    for source in (tensor_batches(torch.zeros(60)), Batches(small_table.split("train"), 64)):
        with pytest.raises(ConfigError, match=r"labels have shape \[59\]"):
            source.with_labels(np.zeros(59, np.float32))


def test_the_mean_of_soft_labels():
    rows = np.random.default_rng(0).random((3, 50), dtype=np.float32)
    mean = SoftLabels.mean([SoftLabels(labels, 0.5) for labels in rows])
    assert (mean.labels.dtype, mean.teacher_share) == (np.float32, 0.5)
    np.testing.assert_allclose(mean.labels, rows.mean(axis=0), rtol=1e-6)


@given(st.lists(st.sampled_from([0.5, 0.5009, 0.6, 0.7]), min_size=3, max_size=3))
def test_plans_are_tried_while_validation_auc_rises_by_more_than_noise(aucs):
    plans, asked = candidate_plans(None, None), []
    known = dict(zip(plans, aucs, strict=True))

    def validation_auc(plan):
        asked.append(plan)
        return known[plan]

    trial = choose_plan(plans, validation_auc)
    rises = [later >= earlier + 0.001 for earlier, later in pairwise(aucs)]
    steps = rises.index(False) if False in rises else len(rises)
    assert trial.best == plans[steps]
    assert asked == plans[: steps + 2]  # the first that gains nothing is the last that is tried
    assert trial.validation_aucs == {str(plan): known[plan] for plan in asked}
    assert trial.failed is None


@pytest.mark.parametrize(
    ("share", "distill_search", "plans"),
    [
        (None, True, ["hard-labels", "soft-labels-1-in-search"]),
        (None, False, ["hard-labels", "soft-labels-1"]),
        (0.5, None, ["soft-labels-0.5", "soft-labels-0.5-in-search"]),
        (0.0, None, ["hard-labels"]),
    ],
)
def test_given_settings_leave_fewer_plans_to_try(share, distill_search, plans):
    assert [str(plan) for plan in candidate_plans(share, distill_search)] == plans


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_teachers": 0}, "num_teachers is 0"),
        ({"teacher_share": 0.0, "num_teachers": 3}, "num_teachers is 3, but teacher_share is 0"),
        ({"teacher_share": 0.0, "num_other_models": 1}, "teacher_models are given, but teacher_share is 0"),
        ({"teacher_share": 0.0, "distill_search": True}, "distill_search is true, but teacher_share is 0"),
        ({"teacher_share": 1.5}, "teacher_share is 1.5"),
    ],
)
def test_contradicting_distillation_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        check_distillation(**{"teacher_share": None, "distill_search": None, **settings})
