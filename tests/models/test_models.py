"""Each model against its formula and against an independent implementation holding the same weights."""

import pytest
import torch

from thresher.embeddings.uniform import UniformConfig, UniformEmbedding
from thresher.models.autoint import AutoInt, AutoIntConfig
from thresher.models.fm import DeepFm, DeepFmConfig, Fm, FmConfig
from thresher.models.layers import fm_term
from thresher.models.model_registry import build_model, registered_models

FIELD_SIZES = (3, 4, 5)
OFFSETS = torch.tensor([0, 3, 7])
LOCAL_IDS = torch.tensor([[0, 3, 4], [2, 1, 0], [1, 0, 2], [2, 2, 3]])
IDS = LOCAL_IDS + OFFSETS


def embedding(dim=4):
    return UniformEmbedding(FIELD_SIZES, UniformConfig(embedding_dim=dim))


def set_rows(table, source):
    """Copy a whole table in place."""
    assert table.shape == source.shape
    table.data.copy_(source.data)


def test_fm_equals_its_formula():
    model = Fm(embedding(), FmConfig())
    model.linear_term.bias.data.fill_(0.25)
    first, vectors = model.linear_term.weights.weight, model.embedding.weight
    for row, logit in zip(IDS.tolist(), model(IDS), strict=True):
        pairs = [vectors[i] @ vectors[j] for i in row for j in row if i < j]
        torch.testing.assert_close(logit, 0.25 + sum(first[i, 0] for i in row) + sum(pairs))


@pytest.mark.parametrize("deep_term", [False, True])
@pytest.mark.parametrize("linear_term", [False, True])
def test_autoint_is_the_sum_of_its_terms(deep_term, linear_term):
    config = AutoIntConfig(attention_dim=6, num_layers=2, deep_term=deep_term, linear_term=linear_term)
    model = AutoInt(embedding(), config).eval()
    vectors = model.embedding(IDS)
    interacted = model.attention[1](model.attention[0](vectors))
    expected = interacted.reshape(4, -1) @ model.output.weight[0] + model.output.bias
    if deep_term:
        expected = expected + model.deep_term(vectors)
    if linear_term:
        expected = expected + model.linear_term(IDS)
    torch.testing.assert_close(model(IDS), expected)
    assert (model.deep_term is not None, model.linear_term is not None) == (deep_term, linear_term)


def test_autoint_with_both_terms_takes_dense_inputs_in_both():
    model = AutoInt(embedding(), AutoIntConfig(attention_dim=4, linear_term=True), num_dense=2).eval()
    dense = torch.randn(4, 2)
    moved = model(IDS, dense + 1) - model(IDS, dense)
    expected = (model.deep_term(model.embedding(IDS), dense + 1) - model.deep_term(model.embedding(IDS), dense)) + (
        model.linear_term.dense.weight.sum()
    )
    torch.testing.assert_close(moved, expected)


@pytest.mark.parametrize("name", sorted(registered_models()))
@pytest.mark.parametrize("num_dense", [0, 2])
def test_gradients_equal_finite_differences(name, num_dense):
    torch.manual_seed(0)
    registered = registered_models()[name]
    model = build_model(embedding(2), registered.config(), num_dense=num_dense).double().eval()
    dense = torch.randn(4, num_dense, dtype=torch.float64) if num_dense else None
    names = list(dict(model.named_parameters()))
    small = [key for key in names if dict(model.named_parameters())[key].numel() <= 200]

    def logits(*values):
        return torch.func.functional_call(model, dict(zip(small, values, strict=True)), (IDS, dense))

    assert torch.autograd.gradcheck(logits, tuple(model.get_parameter(key) for key in small), fast_mode=True)


@pytest.fixture
def torchfm():
    return pytest.importorskip("torchfm.model", reason="torchfm is not installed (extra: peers)")


def test_fm_equals_torchfm(torchfm):
    from torchfm.model.fm import FactorizationMachineModel

    reference, model = FactorizationMachineModel(FIELD_SIZES, 4), Fm(embedding(), FmConfig())
    set_rows(model.embedding.weight, reference.embedding.embedding.weight)
    set_rows(model.linear_term.weights.weight, reference.linear.fc.weight)
    torch.testing.assert_close(model(IDS).sigmoid(), reference(LOCAL_IDS))


def test_deepfm_equals_torchfm_in_training_and_in_evaluation(torchfm):
    from torchfm.model.dfm import DeepFactorizationMachineModel

    reference = DeepFactorizationMachineModel(FIELD_SIZES, 4, (6, 5), dropout=0.0)
    model = DeepFm(embedding(), DeepFmConfig(hidden_sizes=(6, 5), dropout=0.0))
    set_rows(model.embedding.weight, reference.embedding.embedding.weight)
    set_rows(model.linear_term.weights.weight, reference.linear.fc.weight)
    model.deep_term.layers.load_state_dict(reference.mlp.mlp.state_dict())
    torch.testing.assert_close(model(IDS).sigmoid(), reference(LOCAL_IDS))
    torch.testing.assert_close(model.eval()(IDS).sigmoid(), reference.eval()(LOCAL_IDS))


def test_deepfm_equals_deepctr_torch():
    deepctr = pytest.importorskip("deepctr_torch.models", reason="deepctr-torch is not installed (extra: peers)")
    from deepctr_torch.inputs import SparseFeat

    columns = [SparseFeat(f"f{k}", size, embedding_dim=4) for k, size in enumerate(FIELD_SIZES)]
    reference = deepctr.DeepFM(columns, columns, dnn_hidden_units=(6, 5), dnn_use_bn=False, device="cpu").eval()
    model = DeepFm(embedding(), DeepFmConfig(hidden_sizes=(6, 5), dropout=0.0, batch_norm=False)).eval()
    set_rows(model.embedding.weight, torch.cat([reference.embedding_dict[c.name].weight for c in columns]))
    linear = torch.cat([reference.linear_model.embedding_dict[c.name].weight for c in columns])
    set_rows(model.linear_term.weights.weight, linear)
    set_rows(model.linear_term.bias, reference.out.bias)
    for own, other in zip(model.deep_term.layers[::3], [*reference.dnn.linears, reference.dnn_linear], strict=True):
        own.weight.data.copy_(other.weight)
        own.bias.data.copy_(other.bias if other.bias is not None else torch.zeros(1))
    torch.testing.assert_close(model(IDS).sigmoid(), reference(LOCAL_IDS.float())[:, 0])


def test_self_attention_equals_deepctr_torch():
    layers = pytest.importorskip("deepctr_torch.layers", reason="deepctr-torch is not installed (extra: peers)")
    model = AutoInt(embedding(), AutoIntConfig(attention_dim=4, num_layers=1, deep_term=False)).attention[0]
    reference = layers.InteractingLayer(4, head_num=2, use_res=True, scaling=False, device="cpu")
    pairs = ((model.query, reference.W_Query), (model.key, reference.W_key), (model.value, reference.W_Value))
    for own, other in (*pairs, (model.residual, reference.W_Res)):
        own.weight.data.copy_(other.T)
    vectors = torch.randn(5, 3, 4)
    torch.testing.assert_close(model(vectors), reference(vectors))


def test_deepfm_is_fm_plus_its_deep_term():
    model = DeepFm(embedding(), DeepFmConfig()).eval()
    vectors = model.embedding(IDS)
    torch.testing.assert_close(model(IDS), model.linear_term(IDS) + fm_term(vectors) + model.deep_term(vectors))
