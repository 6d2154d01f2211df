"""PepEmbedding: look up then threshold equals threshold then look up, for every granularity and pressure."""

import pytest
import torch
from torch.nn import functional

from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.embeddings.thresholds import GRANULARITIES
from thresher.errors import ConfigError

FIELD_SIZES = (4, 3, 5)
IDS = torch.tensor([[0, 4, 7], [1, 4, 11], [0, 6, 7]], dtype=torch.int32)


def build(pressure="plan", granularity="feature-dimension", **settings):
    torch.manual_seed(1)
    config = PepConfig(embedding_dim=6, pressure=pressure, granularity=granularity, raw_threshold_init=-2.5, **settings)
    embedding = PepEmbedding(FIELD_SIZES, config)
    with torch.no_grad():
        embedding.thresholds.add_(torch.randn_like(embedding.thresholds) * 0.3)
    if pressure == "plan":
        embedding.clock.fill_(-1.5)
    return embedding


@pytest.mark.parametrize("pressure", ["plan", "decay"])
@pytest.mark.parametrize("granularity", list(GRANULARITIES))
def test_lookup_then_threshold_equals_threshold_then_lookup(pressure, granularity):
    embedding = build(pressure, granularity)
    upstream = torch.randn(3, 3, 6)

    fast = embedding(IDS)
    fast.backward(upstream)
    fast_gradients = embedding.weight.grad.clone(), embedding.thresholds.grad.clone()
    embedding.zero_grad()
    plain = functional.embedding(IDS, embedding.pruned_weight())
    plain.backward(upstream)

    torch.testing.assert_close(fast, plain)
    assert 0 < (fast == 0).sum() < fast.numel()
    torch.testing.assert_close(fast_gradients[0], embedding.weight.grad)
    torch.testing.assert_close(fast_gradients[1], embedding.thresholds.grad)


@pytest.mark.parametrize(
    ("granularity", "shape"),
    [("global", (1, 1)), ("dimension", (1, 6)), ("feature", (12, 1)), ("feature-dimension", (12, 6)), ("field", (3, 1)),
     ("field-dimension", (3, 6))],
)  # fmt: skip
def test_shape_of_the_thresholds(granularity, shape):
    assert tuple(build(granularity=granularity).deviation.shape) == shape


def test_field_thresholds_apply_to_their_field_only():
    embedding = build(granularity="field")
    with torch.no_grad():
        embedding.deviation.copy_(torch.tensor([[-50.0], [50.0], [-50.0]]))
    vectors = embedding(IDS)
    assert (vectors[:, 1] == 0).all()
    assert (vectors[:, [0, 2]] != 0).all()


def test_output_equals_the_table_before_the_search_sets_the_clock():
    embedding = PepEmbedding(FIELD_SIZES, PepConfig(embedding_dim=6))
    assert torch.equal(embedding(IDS), embedding.weight[IDS.long()])
    embedding(IDS).sum().backward()
    assert (embedding.deviation.grad == 0).all()


def test_an_entry_is_kept_while_its_score_is_above_the_clock():
    embedding = build()
    embedding(torch.arange(12))
    kept = embedding.pruned_weight() != 0
    assert torch.equal(kept, embedding.scores() > embedding.clock)
    assert embedding.num_parameters() == int(kept.sum())


@pytest.mark.parametrize("pressure", ["plan", "decay"])
@pytest.mark.parametrize("granularity", list(GRANULARITIES))
def test_kept_entries_and_threshold_range_counted_in_chunks_of_rows(pressure, granularity, monkeypatch):
    embedding = build(pressure, granularity)
    threshold = embedding.threshold()
    kept, ends = int((embedding.weight.abs() > threshold).sum()), (threshold.min().item(), threshold.max().item())
    assert 0 < kept < embedding.weight.numel()
    monkeypatch.setattr("thresher.embeddings.pep.CHUNK_ENTRIES", 30)  # 5 of 12 rows
    assert embedding.num_parameters() == kept
    assert embedding.threshold_range() == pytest.approx(ends, rel=1e-6)


def test_zeros_unseen_rows_and_padding_score_minus_infinity():
    embedding = PepEmbedding(FIELD_SIZES, PepConfig(embedding_dim=6), padding_id=4)
    with torch.no_grad():
        embedding.weight[0, 2] = 0
    embedding(IDS)
    scores = embedding.scores()
    assert scores[0, 2] == -torch.inf
    assert (scores[[2, 3, 5, 8, 9, 10]] == -torch.inf).all()
    assert (scores[4] == -torch.inf).all()
    assert torch.isfinite(scores[[1, 6, 7, 11]]).all()
    assert embedding.num_entries() == 11 * 6


@pytest.mark.parametrize(("start", "stop"), [(0, 4), (3, 7), (4, 5), (5, None)])
def test_scores_of_a_range_of_rows(start, stop):
    embedding = PepEmbedding(FIELD_SIZES, PepConfig(embedding_dim=6), padding_id=4)
    embedding(torch.arange(12))
    assert torch.equal(embedding.scores(start, stop), embedding.scores()[start:stop])


def test_evaluation_does_not_mark_rows_as_seen():
    embedding = build()
    embedding.eval()
    embedding(IDS)
    assert not embedding.seen.any()


def test_softplus_prunes_weights_above_one_and_sigmoid_does_not():
    for function, left in (("softplus", 0), ("sigmoid", 12 * 6)):
        embedding = build(threshold_function=function)
        with torch.no_grad():
            embedding.weight.fill_(1.2)
            embedding.clock.fill_(100.0)
        assert embedding.num_parameters() == left


def test_thresholds_have_their_own_parameter_group():
    embedding = build()
    groups = embedding.parameter_groups()
    assert groups["embeddings"] == [embedding.weight]
    assert groups["thresholds"] == [embedding.deviation]


def test_fixed_deviation_is_not_learned():
    embedding = build(learn_deviation=False)
    assert not embedding.deviation.requires_grad
    with pytest.raises(ConfigError, match="learn_deviation"):
        PepConfig(pressure="decay", learn_deviation=False)
