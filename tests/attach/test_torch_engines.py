"""Models with attached and compact tables in torch.func, torch.compile, torch.export and safetensors."""

import copy

import pytest
import torch
from safetensors.torch import load_model, save_file, save_model
from torch import nn
from torch.func import functional_call, grad, vmap

from thresher import RowAdam, attach_, compact_
from thresher.attach.compact_tables import put_compact_
from thresher.embeddings.pep import PepConfig

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
IDS = torch.arange(6)


class Tied(nn.Module):
    """A table tied to the output layer, another one of the same width, and first-order weights."""

    def __init__(self, *, sparse=False):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.others = nn.Embedding(40, 8), nn.Embedding(30, 8, sparse=sparse)
        self.bias = nn.Embedding(30, 1, sparse=sparse)
        self.out = nn.Linear(8, 40, bias=False)
        self.out.weight = self.tokens.weight

    def forward(self, ids):
        return self.out(self.tokens(ids) + self.others(ids)) + self.bias(ids)


def compacted(keep=0.2):
    model = Tied().eval()
    draw = torch.Generator().manual_seed(0)
    for name in ("tokens", "others"):
        weight = model.get_submodule(name).weight.detach().reshape(-1)
        positions = (torch.rand(len(weight), generator=draw) < keep).nonzero().squeeze(1)
        put_compact_(model, name, positions, weight[positions])
    return model


def test_a_compact_table_takes_its_input_by_keyword():
    model = compacted()
    assert torch.equal(model.tokens(input=IDS), model.tokens(IDS))


@pytest.mark.parametrize("keep", [0.2, 0.0])
def test_compact_tables_in_functional_transformations(keep):
    model = compacted(keep)
    parameters = dict(model.named_parameters())

    def loss(values, ids):
        return functional_call(model, values, (ids,)).square().mean()

    expected = torch.autograd.grad(loss(parameters, IDS), list(parameters.values()))
    for ours, theirs in zip(grad(loss)(parameters, IDS).values(), expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    per_batch = vmap(grad(loss), in_dims=(None, 0))(parameters, IDS.view(2, 3))
    assert {len(gradient) for gradient in per_batch.values()} == {2}
    torch.testing.assert_close(vmap(model)(IDS.view(2, 3)).flatten(0, 1), model(IDS))


@pytest.mark.parametrize("keep", [0.2, 0.0])
def test_compact_tables_compile_as_one_graph(keep):
    model = compacted(keep)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(IDS), model(IDS))
    compiled(IDS).sum().backward()
    torch._dynamo.reset()


def test_an_exported_model_stays_compact():
    model = compacted()
    compact_(model)
    program = torch.export.export(model, (IDS,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    longer = torch.arange(11)
    torch.testing.assert_close(program.module()(longer), model(longer))
    assert max(tensor.numel() for tensor in program.state_dict.values()) < 40 * 8 // 2


@pytest.mark.parametrize("granularity", ["global", "dimension", "feature-dimension"])
def test_models_are_saved_with_safetensors(granularity, tmp_path):
    model = Tied()
    model.out.weight = nn.Parameter(model.tokens.weight.detach().clone())  # safetensors refuses tied plain tables
    attach_(model, PepConfig(granularity=granularity))
    save_file(model.state_dict(), tmp_path / "attached.safetensors")
    tied, pruned = Tied(), compacted()
    attach_(tied, PepConfig(granularity=granularity))
    save_file(pruned.state_dict(), tmp_path / "compact.safetensors")
    for saved, other in ((tied, Tied()), (pruned, compacted())):
        if saved is tied:
            attach_(other, PepConfig(granularity=granularity))
        with torch.no_grad():
            for parameter in saved.parameters():
                parameter.mul_(1.5)
        save_model(saved, str(tmp_path / "model.safetensors"))
        load_model(other, str(tmp_path / "model.safetensors"))
        assert torch.equal(other(IDS), saved(IDS))


@pytest.mark.parametrize("granularity", ["global", "feature-dimension"])
def test_models_of_hugging_face_are_saved_and_loaded(granularity, tmp_path):
    """With shared thresholds, and with a compact table that is tied to the output layer."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    transformers.utils.logging.disable_progress_bar()
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    config = transformers.GPT2Config(vocab_size=60, n_embd=16, n_layer=1, n_head=2, n_positions=8, **ends)
    torch.manual_seed(0)
    attached, pruned = (transformers.GPT2LMHeadModel(config).eval() for _ in range(2))
    keep = torch.arange(0, 60 * 16, 5)
    for model in (attached, pruned):
        if model is attached:
            attach_(model, PepConfig(granularity=granularity))
        else:
            put_compact_(model, "transformer.wte", keep, model.transformer.wte.weight.detach().reshape(-1)[keep])
        model.save_pretrained(tmp_path / "model")
        other = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
        load_model(other, str(tmp_path / "model" / "model.safetensors"))
        assert torch.equal(other(IDS.view(1, 6)).logits, model(IDS.view(1, 6)).logits)


def test_row_adam_updates_sparse_first_order_weights_beside_compact_tables():
    model = Tied(sparse=True)
    nothing = torch.empty(0)
    put_compact_(model, "others", nothing.long(), nothing)
    optimizer = RowAdam(model.parameters(), lr=0.1)
    before = model.bias.weight.detach().clone()
    model(IDS).square().sum().backward()
    assert model.bias.weight.grad.is_sparse
    optimizer.step()
    assert (model.bias.weight != before).flatten().nonzero().flatten().tolist() == IDS.tolist()
