import pytest
import torch
from hypothesis import given, strategies as st

from thresher.errors import ConfigError
from thresher.models.layers import DeepTerm, DeepTermConfig, LinearTerm, SelfAttention, fm_term


def naive_fm(vectors):
    """All pairs of fields, one dot product each."""
    B, F, _ = vectors.shape
    return torch.stack(
        [sum((vectors[b, f] @ vectors[b, g] for f in range(F) for g in range(f)), torch.tensor(0.0)) for b in range(B)]
    )


@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6))
def test_fm_term_is_the_sum_of_all_pairs(B, F, D, seed):
    vectors = torch.randn(B, F, D, generator=torch.Generator().manual_seed(seed))
    expected = naive_fm(vectors)
    torch.testing.assert_close(fm_term(vectors), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(fm_term(vectors.requires_grad_()), expected, rtol=1e-4, atol=1e-4)


def test_fm_term_gradients_to_second_order():
    vectors = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(fm_term, vectors)
    assert torch.autograd.gradgradcheck(fm_term, vectors)


def test_fm_term_gradient_under_vmap():
    vectors = torch.randn(3, 4, 2, dtype=torch.float64)
    gradient = torch.func.vmap(torch.func.grad(lambda row: fm_term(row[None])[0]))(vectors)
    torch.testing.assert_close(gradient, vectors.sum(1, keepdim=True) - vectors)


def test_linear_term_adds_weights_bias_and_dense_inputs():
    term = LinearTerm(5, num_dense=2)
    term.bias.data.fill_(0.5)
    ids, dense = torch.tensor([[0, 3], [4, 4]], dtype=torch.int32), torch.randn(2, 2)
    weights = term.weights.weight[:, 0]
    expected = torch.stack([weights[0] + weights[3], weights[4] * 2]) + 0.5 + dense @ term.dense.weight[0]
    torch.testing.assert_close(term(ids, dense), expected)
    assert [id(p) for p in term.parameter_groups()["embeddings"]] == [id(term.weights.weight)]


def test_deep_term_equals_its_formula():
    term = DeepTerm(2, 3, 1, DeepTermConfig(hidden_sizes=(4,), dropout=0.5)).eval()
    linear, norm, _, _, output = term.layers
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2.0)
    vectors, dense = torch.randn(5, 2, 3), torch.randn(5, 1)
    hidden = torch.cat([vectors.reshape(5, 6), dense], 1) @ linear.weight.T + linear.bias
    hidden = (hidden - norm.running_mean) / (norm.running_var + norm.eps).sqrt() * norm.weight + norm.bias
    torch.testing.assert_close(term(vectors, dense), (hidden.clamp(min=0) @ output.weight.T + output.bias)[:, 0])


def test_deep_term_without_hidden_layers_or_norm():
    assert len(DeepTerm(2, 3, 0, DeepTermConfig(hidden_sizes=())).layers) == 1
    assert len(DeepTerm(2, 3, 0, DeepTermConfig(hidden_sizes=(4,), batch_norm=False)).layers) == 4


@pytest.mark.parametrize("residual", [True, False])
def test_self_attention_equals_the_paper_s_formula(residual):
    layer = SelfAttention(3, 4, 2, dropout=0.0, residual=residual)
    vectors = torch.randn(2, 5, 3)
    expected = torch.zeros(2, 5, 4)
    for b in range(2):
        for head in (0, 1):
            part = slice(2 * head, 2 * head + 2)
            query, key, value = (vectors[b] @ p.weight[part].T for p in (layer.query, layer.key, layer.value))
            for f in range(5):
                scores = torch.stack([query[f] @ key[g] for g in range(5)]).exp()  # Eq. 5
                expected[b, f, part] = ((scores / scores.sum())[:, None] * value).sum(0)  # Eq. 6
        if residual:
            expected[b] += vectors[b] @ layer.residual.weight.T  # Eq. 8
    torch.testing.assert_close(layer(vectors), expected.clamp(min=0))


def test_self_attention_drops_out_only_while_training():
    layer, vectors = SelfAttention(3, 4, 2, dropout=0.9, residual=False), torch.randn(2, 5, 3)
    assert not torch.equal(layer(vectors), layer(vectors))
    layer.eval()
    assert torch.equal(layer(vectors), layer(vectors))


@pytest.mark.parametrize(("built", "given"), [(2, 0), (0, 2), (2, 3)])
def test_the_number_of_dense_inputs_must_match(built, given):
    dense = torch.randn(1, given) if given else None
    with pytest.raises(ConfigError, match=rf"batch has {given} dense inputs.*num_dense={built}\."):
        LinearTerm(5, built)(torch.tensor([[1, 2]]), dense)
    with pytest.raises(ConfigError, match=rf"batch has {given} dense inputs.*num_dense={built}\."):
        DeepTerm(2, 3, built, DeepTermConfig())(torch.randn(1, 2, 3), dense)


@pytest.mark.parametrize("wrong", [{"hidden_sizes": (0,)}, {"dropout": 1.0}, {"dropout": -0.1}])
def test_invalid_settings_are_rejected(wrong):
    with pytest.raises(ConfigError):
        DeepTermConfig(**wrong)
