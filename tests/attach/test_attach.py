"""attach_ and detach_ on user-defined models: what stays, what changes, what is rejected."""

import copy

import pytest
import torch
from torch import nn

from thresher.attach import AttachedTable, attach_, compact_, detach_, threshold_group
from thresher.attach.compact_tables import put_compact_
from thresher.compact.embedding import quantize_aware_
from thresher.embeddings.pep import PepConfig, PepEmbedding
from thresher.errors import AttachError


class TwoTables(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(20, 4)
        self.nested = nn.ModuleDict({"movies": nn.ModuleList([nn.Embedding(30, 4, padding_idx=0), nn.Embedding(9, 3)])})
        self.first_order = nn.Embedding(50, 1)
        self.out = nn.Linear(4, 1)

    def forward(self, users, items):
        vectors = self.user(users) * self.nested["movies"][0](items)
        first = self.first_order(users) + self.nested["movies"][1](items % 9).sum(-1, keepdim=True)
        return (self.out(vectors) + first).squeeze(-1)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return TwoTables()


USERS, ITEMS = torch.tensor([1, 2, 3, 3]), torch.tensor([0, 5, 29, 29])


def set_clock(model, clock):
    for module in model.modules():
        if isinstance(module, PepEmbedding):
            module.clock.fill_(clock)


def test_returns_the_attached_tables_and_skips_width_one(model):
    assert attach_(model) == [
        AttachedTable("user", 20, 4),
        AttachedTable("nested.movies.0", 30, 4),
        AttachedTable("nested.movies.1", 9, 3),
    ]
    assert type(model.first_order) is nn.Embedding
    assert attach_(model, min_embedding_dim=1) == [AttachedTable("first_order", 50, 1)]


@pytest.mark.parametrize("granularity", ["global", "dimension", "feature", "feature-dimension", "field"])
def test_outputs_are_bit_equal_right_after_attaching(model, granularity):
    expected = model(USERS, ITEMS)
    attach_(model, PepConfig(granularity=granularity))
    assert torch.equal(model(USERS, ITEMS), expected)
    assert torch.equal(model.eval()(USERS, ITEMS), expected)


def test_gradients_are_equal_right_after_attaching_even_where_weights_are_zero(model):
    nn.init.zeros_(model.user.weight)
    plain = copy.deepcopy(model)
    plain(USERS, ITEMS).sum().backward()
    attach_(model)
    model(USERS, ITEMS).sum().backward()
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(model.get_parameter(name).grad, parameter.grad, rtol=0, atol=0)
    assert not model.nested["movies"][0].weight.grad[0].any()  # the padding row


def test_parameters_and_state_dict_names_stay(model):
    before, names = dict(model.named_parameters()), list(model.state_dict())
    attach_(model)
    assert all(model.get_parameter(name) is parameter for name, parameter in before.items())
    assert set(names) <= set(model.state_dict())
    added = {name.rpartition(".")[2] for name in set(model.state_dict()) - set(names)}
    assert added == {"deviation", "clock", "seen"}


def test_an_optimizer_created_before_attaching_stays_valid(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    attach_(model)
    optimizer.add_param_group(threshold_group(model, learning_rate=0.5))
    set_clock(model, -3.0)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    model(USERS, ITEMS).sum().backward()
    optimizer.step()
    for name, parameter in model.named_parameters():
        assert not torch.equal(parameter, before[name]), name
    assert optimizer.param_groups[-1]["lr"] == 0.5


def test_thresholds_are_shared_by_tables_of_one_width(model):
    attach_(model, PepConfig(granularity="dimension"), where="user")
    attach_(model, PepConfig(granularity="dimension"))
    items = model.nested["movies"]
    assert model.user.deviation is items[0].deviation
    assert items[1].deviation.shape == (1, 3)
    assert len(threshold_group(model)["params"]) == 2


def test_lookups_are_equation_8_once_the_clock_is_set(model):
    attach_(model)
    model.user.deviation.data.normal_()
    set_clock(model, -1.0)
    threshold = torch.nn.functional.softplus(model.user.deviation - 1.0)
    weight = model.user.raw_weight
    expected = (weight.sign() * (weight.abs() - threshold).clamp(min=0))[USERS]
    torch.testing.assert_close(model.user(USERS), expected)
    assert (expected == 0).any()


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("user", ["user"]),
        ("nested.*", ["nested.movies.0", "nested.movies.1"]),
        (lambda module, name: module.padding_idx is not None, ["nested.movies.0"]),
    ],
)
def test_where_selects_tables(model, where, names):
    assert [table.name for table in attach_(model, where=where)] == names


def test_min_features_selects_large_tables(model):
    assert [table.name for table in attach_(model, min_features=20)] == ["user", "nested.movies.0"]


def test_detach_restores_the_same_plain_modules(model):
    model.user.note = "mine"
    user, weight = model.user, model.user.weight
    state = copy.deepcopy(model.state_dict())
    touched = attach_(model)
    assert (model.user is user, user.note) == (True, "mine")
    assert detach_(model) == touched
    assert model.user is user
    assert type(user) is nn.Embedding
    assert user.weight is weight
    assert (user.note, vars(user).keys()) == ("mine", vars(nn.Embedding(1, 1)).keys() | {"note"})
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("prune", [True, False])
def test_detach_writes_pruned_values_unless_prune_is_false(model, prune):
    before = model.user.weight.detach().clone()
    attach_(model)
    set_clock(model, -1.0)
    pruned = model(USERS, ITEMS)
    detach_(model, prune=prune)
    assert torch.equal(model(USERS, ITEMS), pruned) == prune
    assert torch.equal(model.user.weight, before) != prune


def test_hooks_and_references_outside_the_module_tree_stay_valid(model):
    calls = []
    model.user.register_forward_hook(lambda module, inputs, output: calls.append(type(module).__name__))
    outside = [model.user]
    attach_(model)
    set_clock(model, -1.0)
    assert torch.equal(outside[0](USERS), model.user(USERS))
    assert calls == ["AttachedEmbedding", "AttachedEmbedding"]


def test_attached_tables_are_instances_of_nn_embedding(model):
    attach_(model)
    assert isinstance(model.user, nn.Embedding)
    assert (model.user.num_embeddings, model.user.embedding_dim, model.user.padding_idx) == (20, 4, None)


def test_state_dict_round_trip(model):
    attach_(model)
    set_clock(model, -1.5)
    model(USERS, ITEMS)
    other = TwoTables()
    attach_(other)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(USERS, ITEMS), model(USERS, ITEMS))
    assert torch.equal(other.user.seen, model.user.seen)


def test_deepcopy_is_independent(model):
    attach_(model, PepConfig(granularity="dimension"))
    set_clock(model, -1.0)
    twin = copy.deepcopy(model)
    expected = model(USERS, ITEMS)
    assert torch.equal(twin(USERS, ITEMS), expected)
    assert twin.user.deviation is twin.nested["movies"][0].deviation
    with torch.no_grad():
        twin.user.raw_weight.zero_()
    assert torch.equal(model(USERS, ITEMS), expected)
    detach_(twin, prune=False)
    assert not twin.user.weight.any()


def test_moves_to_another_type_and_back(model):
    attach_(model)
    set_clock(model, -1.0)
    expected = model(USERS, ITEMS)
    model.double()
    assert model(USERS, ITEMS).dtype == torch.float64
    torch.testing.assert_close(model.float()(USERS, ITEMS), expected)


def test_half_precision_tables_stay_half(model):
    model.bfloat16()
    expected = model(USERS, ITEMS)
    attach_(model)
    assert torch.equal(model(USERS, ITEMS), expected)
    set_clock(model, -1.0)
    assert model.user(USERS).dtype == torch.bfloat16


def test_data_parallel_replicas_give_the_same_outputs(model):
    """What DataParallel does to a module: a shallow copy whose parameters are plain tensors."""
    attach_(model)
    set_clock(model, -1.0)
    replica = model.user._replicate_for_data_parallel()
    for name, parameter in model.user._parameters.items():
        setattr(replica, name, parameter.detach().clone())
    for name, buffer in model.user._buffers.items():
        setattr(replica, name, buffer.clone())
    assert torch.equal(replica(USERS), model.user(USERS))


def test_compiles_in_one_graph(model):
    attach_(model)
    set_clock(model, -1.0)
    expected = model(USERS, ITEMS)
    expected.sum().backward()
    gradient = model.user.raw_weight.grad.clone()
    model.zero_grad()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    found = compiled(USERS, ITEMS)
    found.sum().backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(model.user.raw_weight.grad, gradient)
    torch._dynamo.reset()


def test_sparse_tables_keep_sparse_gradients():
    model = nn.Sequential(nn.Embedding(40, 4, sparse=True))
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    attach_(model)
    set_clock(model, -2.0)
    optimizer.add_param_group({"params": threshold_group(model)["params"]})
    model(torch.tensor([3, 3, 7])).sum().backward()
    table, weight = model[0], model[0].raw_weight
    assert weight.grad.is_sparse
    assert table.deviation.grad.is_sparse
    assert sorted(weight.grad.coalesce().indices()[0].tolist()) == [3, 7]
    before = weight.detach().clone()
    optimizer.step()
    assert (weight != before).any(dim=1).nonzero().flatten().tolist() == [3, 7]


def test_threshold_group_selects_sparse_or_dense_gradients():
    model = nn.ModuleList([nn.Embedding(40, 4, sparse=True), nn.Embedding(30, 4)])
    attach_(model)
    set_clock(model, -2.0)
    for_sparse = torch.optim.SparseAdam([model[0].raw_weight])
    for_sparse.add_param_group(threshold_group(model, sparse=True))
    for_dense = torch.optim.Adam([model[1].raw_weight])
    for_dense.add_param_group(threshold_group(model, sparse=False))
    before = [table.deviation.detach().clone() for table in model]
    sum(table(torch.tensor([3, 7])).square().sum() for table in model).backward()
    for_sparse.step()
    for_dense.step()
    assert not any(map(torch.equal, before, [table.deviation for table in model]))
    assert len(threshold_group(model)["params"]) == 2


def test_threshold_group_without_sparse_gradients_raises():
    model = nn.ModuleList([nn.Embedding(40, 4, sparse=True), nn.EmbeddingBag(40, 4)])
    model[1].weight = model[0].weight  # one dense gradient makes the sum dense
    attach_(model)
    assert len(threshold_group(model, sparse=False)["params"]) == 1
    with pytest.raises(AttachError, match="no thresholds of the model have sparse gradients"):
        threshold_group(model, sparse=True)


def test_scale_grad_by_freq_is_kept():
    plain = nn.Sequential(nn.Embedding(10, 3, scale_grad_by_freq=True))
    attached = copy.deepcopy(plain)
    attach_(attached)
    ids = torch.tensor([1, 1, 1, 4])
    for model in (plain, attached):
        (model(ids) * torch.arange(12.0).view(4, 3)).sum().backward()
    torch.testing.assert_close(attached[0].weight.grad, plain[0].weight.grad)


@pytest.mark.parametrize("attached", [False, True])
def test_scale_grad_by_freq_is_kept_in_retraining(attached):
    plain = nn.Sequential(nn.Embedding(10, 3, scale_grad_by_freq=True))
    compact = copy.deepcopy(plain)
    if attached:
        attach_(compact)
    mask = torch.arange(30).view(10, 3) % 2 == 0
    table = put_compact_(compact, "0", mask.flatten().nonzero().squeeze(1), plain[0].weight[mask])
    ids = torch.tensor([[1, 1], [1, 2], [3, 3]])
    for model in (plain, compact):
        (model(ids) * torch.arange(18.0).view(3, 2, 3)).sum().backward()
    torch.testing.assert_close(table.values.grad, plain[0].weight.grad[mask])
    torch.testing.assert_close(compact(ids), plain(ids) * mask[ids])
    assert quantize_aware_(compact, "int8") == ["0"]
    assert compact[0].scale_grad_by_freq


def test_only_training_marks_rows_as_seen(model):
    attach_(model)
    model.eval()(USERS, ITEMS)
    assert not model.user.seen.any()
    model.train()(USERS, ITEMS)
    assert model.user.seen.nonzero().flatten().tolist() == [1, 2, 3]


# errors: the model is unchanged when one is raised


def test_no_match_lists_the_tables(model):
    with pytest.raises(AttachError, match=r"where='movie\*'.*user \[20 × 4\], nested.movies.0 \[30 × 4\]"):
        attach_(model, where="movie*")
    with pytest.raises(AttachError, match=r"first_order.*min_embedding_dim=1"):
        attach_(model, where="first_order")
    with pytest.raises(AttachError, match=r"Linear has no table to prune.*nn\.Embedding"):
        attach_(nn.Linear(2, 2))


def test_the_root_cannot_be_the_table():
    with pytest.raises(AttachError, match="Wrap it"):
        attach_(nn.Embedding(3, 2))


def test_attaching_twice_raises(model):
    attach_(model)
    with pytest.raises(AttachError, match="already attached"):
        attach_(model)


def test_detaching_a_plain_model_raises(model):
    with pytest.raises(AttachError, match="nothing to detach"):
        detach_(model)
    with pytest.raises(AttachError, match="Call attach_"):
        threshold_group(model)


def test_max_norm_is_rejected(model):
    model.user = nn.Embedding(20, 4, max_norm=1.0)
    with pytest.raises(AttachError, match=r"user \[20 × 4\] has max_norm=1.0.*rescale"):
        attach_(model)
    assert type(model.nested["movies"][0]) is nn.Embedding
    assert len(attach_(model, where="nested*")) == 2


def test_a_frozen_table_is_rejected_unless_trained(model):
    model.user.weight.requires_grad_(False)
    with pytest.raises(AttachError, match=r"user \[20 × 4\] is frozen.*where=….*trained=True"):
        attach_(model)
    assert type(model.user) is nn.Embedding
    assert "user" not in [table.name for table in attach_(model, where="nested*")]
    assert attach_(model, where="user", trained=True) == [AttachedTable("user", 20, 4)]


def test_a_subclass_that_overrides_forward_is_rejected(model):
    class Scaled(nn.Embedding):
        def forward(self, input):
            return 2 * super().forward(input)

    model.user = Scaled(20, 4)
    with pytest.raises(AttachError, match=r"user .*Scaled.* overrides forward"):
        attach_(model)


@pytest.mark.parametrize("more", ["scale", "counts", "norm"])
def test_a_subclass_with_additional_members_is_rejected(model, more):
    class WithMembers(nn.Embedding):
        def __init__(self, num_features, embedding_dim):
            super().__init__(num_features, embedding_dim)
            if more == "scale":
                self.scale = nn.Parameter(torch.ones(1))
            elif more == "counts":
                self.register_buffer("counts", torch.zeros(num_features))
            else:
                self.norm = nn.LayerNorm(embedding_dim)

    model.user = WithMembers(20, 4)
    with pytest.raises(
        AttachError, match=rf"user .*WithMembers\) holds {more} in addition to its table.*Keep a plain nn.Embedding"
    ):
        attach_(model)
    assert type(model.user) is WithMembers
    assert type(model.nested["movies"][0]) is nn.Embedding


def test_methods_of_a_subclass_are_restored_by_detach(model):
    class Normed(nn.Embedding):
        def norms(self):
            return self.weight.norm(dim=1)

    model.user = Normed(20, 4)
    attach_(model)
    assert not hasattr(model.user, "norms")
    detach_(model)
    assert model.user.norms().shape == (20,)


def test_a_forward_set_on_the_instance_is_rejected():
    table = nn.Embedding(10, 4)
    plain = table.forward
    table.forward = lambda ids: plain(ids) * 2
    with pytest.raises(AttachError, match="overrides forward"):
        attach_(nn.Sequential(table))


def test_a_table_used_by_another_kind_of_module_is_rejected(model):
    model.loss = nn.Module()
    model.loss.centres = model.user.weight
    with pytest.raises(AttachError, match="also a parameter of loss"):
        attach_(model)


def test_an_embedding_dim_that_differs_from_the_table_is_rejected():
    model = nn.Sequential(nn.Embedding(10, 8), nn.Embedding(10, 4))
    with pytest.raises(
        AttachError, match=r"embedding_dim is 8, but table 1 \[10 × 4\] has width 4.*omit embedding_dim"
    ):
        attach_(model, PepConfig(embedding_dim=8))
    assert type(model[0]) is nn.Embedding
    assert len(attach_(model, PepConfig(embedding_dim=8), where="0")) == 1
    assert len(attach_(model, PepConfig(granularity="dimension"))) == 1


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize("bad", [-1, 20])
def test_ids_outside_the_table_raise_index_error(kind, bad):
    model = nn.Sequential(kind(20, 4))
    ids = torch.tensor([[3, bad]])
    attach_(model)
    for _ in range(2):
        for training in (True, False):
            with pytest.raises(IndexError, match=f"^id {bad} is outside a table of 20 rows"):
                model.train(training)(ids)
        compact_(model)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
@pytest.mark.parametrize("ids", [torch.tensor([[1.7, 2.0]]), torch.tensor([[True, False]])])
def test_ids_that_are_not_integers_are_rejected(kind, ids):
    model = nn.Sequential(kind(20, 4))
    attach_(model)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"ids have dtype torch\.\w+: expected integers"):
            model(ids)
        compact_(model)
