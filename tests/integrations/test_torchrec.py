"""The sharded search of TorchRec: cuts equal those of whole tables, and tickets are those of the unsharded model."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # FBGEMM deprecates modules that it imports itself
    pytest.importorskip("torchrec", reason="TorchRec is not installed: make torchrec", exc_type=ImportError)

from integrations import torchrec_models as toys
from processes import run_in_processes
from thresher import Searcher, compact_, load_ticket, save_ticket
from thresher.errors import AttachError, BudgetError, ConfigError
from thresher.integrations import torchrec as pruning
from thresher.kernels.top_scores import ScoresInMemory, top_masks
from thresher.search.schedule import Plan

STEPS = 60
CASES = [(True, ("row", "row", "row")), (True, ("column", "data", "table")), (False, ("row", "column", "row"))]


def whole_tables(sharded, searcher):
    """The tables of all processes, joined by TorchRec's own metadata."""
    whole = {}
    for name, shape in searcher._shapes.items():
        table, value = torch.zeros(shape), sharded.state_dict()[f"{name}.weight"]
        for own, part in toys.parts(value):
            table[part] = own.detach()
        if hasattr(value, "local_shards"):
            torch.distributed.all_reduce(table)
        whole[name] = table
    return whole


def search_whole(bags):
    """The rule of a sharded search on whole tables, in one process: the tables before the last cut."""
    model = toys.Clicks(bags)
    tables = [value for name, value in model.named_parameters() if "layer" not in name]
    initial, seen = [table.detach().clone() for table in tables], [torch.zeros(len(table)) > 0 for table in tables]
    plan, steps, last = Plan(sum(table.numel() for table in tables), 104, STEPS - STEPS // 3), 0, []
    masks = [torch.ones_like(table) for table in tables]

    @torch.no_grad()
    def after_step():
        nonlocal steps
        steps += 1
        for rows, table, first, mask in zip(seen, tables, initial, masks, strict=True):
            if steps <= STEPS // 3:
                rows |= (table != first).any(1)
            table.mul_(mask)
        pruning_steps = steps - STEPS // 3
        if pruning_steps < 0 or pruning_steps % 5:
            return
        last[:] = [table.detach().clone() for table in tables]
        scores = [
            t.detach().abs().masked_fill(~rows[:, None], -torch.inf) for t, rows in zip(tables, seen, strict=True)
        ]
        num_kept = plan.num_kept(pruning_steps)
        masks[:] = top_masks([ScoresInMemory(table) for table in scores], num_kept)
        every = torch.cat([table.flatten() for table in scores]).sort(descending=True).values
        threshold = float(every[num_kept]) if num_kept < len(every) else 0.0
        for table, mask in zip(tables, masks, strict=True):
            table.copy_(functional.softshrink(table, max(0.0, threshold)) * mask)

    toys.train(model, list(model.parameters()), STEPS, after_step)
    return last


def search(rank, bags, kinds):
    """A sharded search; at each cut, the tables as they were then."""
    model = toys.Clicks(bags)
    sharded = toys.shard(model, kinds)
    searcher = pruning.ShardedSearcher(sharded, ["50%", "10%", "20%rows"], steps=STEPS, every=5)
    tables, cut = [], searcher.cut

    def cut_and_record(budget, masks):
        tables.append(whole_tables(sharded, searcher))
        cut(budget, masks)

    searcher.cut = cut_and_record
    toys.train(sharded, list(sharded.parameters()), STEPS, searcher.step, rank)  # fused tables have no gradients
    nonzero = sum(int(table.count_nonzero()) for table in whole_tables(sharded, searcher).values())
    tickets = [replace(ticket, placeholders={}) for ticket in searcher.tickets]  # a mapping that pickle supports
    return tickets, tables, nonzero, repr(searcher)


def refuse(rank):
    sharded = toys.shard(toys.Clicks(), ["row"] * 3)
    with pytest.raises(BudgetError, match="is in bytes"):
        pruning.ShardedSearcher(sharded, "1KB", steps=9)
    with pytest.raises(ConfigError, match="leaves no step for pruning"):
        pruning.ShardedSearcher(sharded, "10%", steps=9, warmup_steps=9)
    with pytest.raises(AttachError, match="no sharded table to search"):
        pruning.ShardedSearcher(sharded, "10%", steps=9, where="*.nothing")
    with pytest.raises(AttachError, match="no PEP table to search: TorchRec shards"):
        Searcher(sharded, "10%", steps=9)


def retrain(rank, ticket):
    """Compact tables under DistributedModelParallel: whole in every process, equal to one process."""
    model = toys.Clicks()
    ticket.apply_(model)
    assert pruning.keep_unsharded_(model) == ["tables"]
    wrapped = toys.DistributedModelParallel(model, device=torch.device("cpu"))
    toys.train(wrapped, list(wrapped.parameters()), 10, rank=rank)
    return {name: value.detach() for name, value in model.state_dict().items()}


def retrain_dropped(rank, ticket):
    """A ticket of whole rows as smaller tables, sharded with fused optimizers, against one process."""
    model, alone = toys.Clicks(), toys.Clicks()
    for one in (model, alone):
        pruning.drop_rows_(one, ticket)
    toys.train(alone, list(alone.parameters()), 10)
    sharded = toys.shard(model, ["row"] * 3, within="tables.collection")
    toys.train(sharded, list(sharded.parameters()), 10, rank=rank)
    weight = alone.get_parameter("layer.weight")
    return torch.allclose(dict(sharded.named_parameters())["layer.weight"], weight, atol=1e-5)


def search_one_table(rank):
    """A search of one table beside others that are sharded too."""
    sharded = toys.shard(toys.Clicks(), ["row", "column", "table"])
    searcher = pruning.ShardedSearcher(sharded, "50%", steps=10, every=5, where="*t_user")
    toys.train(sharded, list(sharded.parameters()), 10, searcher.step, rank)
    ticket, whole = searcher.tickets[0], whole_tables(sharded, searcher)
    model = toys.Clicks()
    assert ticket.apply_(model) == list(whole) == ["tables.embedding_bags.t_user"]
    for name, value in toys.Clicks().state_dict().items():
        if "t_user" not in name:
            assert torch.equal(model.state_dict()[name], value)
            assert not torch.equal(ticket.final.state[name], value)  # trained, in all processes


def look_up_while_pruning(rank):
    """Between two prunings, lookups read pruned entries as 0 though updates have changed them."""
    sharded = toys.shard(toys.Clicks(), ["row", "column", "data"])
    searcher = pruning.ShardedSearcher(sharded, "10%", steps=12, warmup_steps=3, every=4)
    toys.train(sharded, list(sharded.parameters()), 8, searcher.step, rank)
    pruned = [shard.weight[~shard.kept] for shard in searcher.shards]
    assert all(values.any() for values in pruned)  # from the step after pruning
    seen = [shard.seen.clone() for shard in searcher.shards]
    features, labels = toys.batch(7)
    sharded.eval()
    with torch.no_grad():
        sharded(features)
        sharded(toys.every_id())
    sharded.train()
    assert not any(shard.weight[~shard.kept].any() for shard in searcher.shards)
    assert all(torch.equal(shard.seen, before) for shard, before in zip(searcher.shards, seen, strict=True))
    row_wise = toys.shard(toys.Clicks(), ["row"] * 3)
    searcher = pruning.ShardedSearcher(row_wise, "10%", steps=12, warmup_steps=0, every=1)
    searcher.step()
    first, second = row_wise(features), row_wise(features)  # a write between a forward and its backward pass
    functional.binary_cross_entropy_with_logits(first + second, labels).backward()


def search_attached(rank):
    """Learned thresholds on collections that DistributedModelParallel keeps whole."""
    model = toys.Clicks(bags=False)
    pruning.attach_(model)
    wrapped = toys.DistributedModelParallel(model, device=torch.device("cpu"))
    searcher = Searcher(model, "50%", steps=STEPS, every=5)
    toys.train(wrapped, list(wrapped.parameters()), STEPS, searcher.step, rank)
    return dict(searcher.tickets[0].masks), type(model.tables).__name__


def in_two_processes(rank, ticket_file):
    warnings.simplefilter("ignore")  # of TorchRec on this version of torch
    refuse(rank)
    search_one_table(rank)
    look_up_while_pruning(rank)
    found = [search(rank, *case) for case in CASES]
    if rank == 0:
        save_ticket(found[0][0][-1], ticket_file)
    torch.distributed.barrier()
    rows = next(ticket for ticket in found[0][0] if ticket.budget.unit == "rows")
    assert retrain_dropped(rank, rows)
    return found, retrain(rank, load_ticket(ticket_file)), search_attached(rank)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    file = tmp_path_factory.mktemp("tickets") / "ticket"
    return *run_in_processes(in_two_processes, file), file


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(CASES)))
def test_tickets_of_two_processes_are_those_of_the_whole_tables(results, case):
    """Searches in one process and in two see the same tables, but for rounding, and the cuts are equal."""
    (tickets, tables, nonzero, shown), (others, *_) = results[0][0][case], results[1][0][case]
    for table, expected in zip(tables[-1].values(), search_whole(CASES[case][0]), strict=True):
        assert torch.allclose(table, expected, atol=1e-5)
    assert shown.startswith("ShardedSearcher(step 60, finished")
    initial = toys.Clicks(CASES[case][0])
    seen = {name: (tables[-1][name] != initial.state_dict()[f"{name}.weight"]).any(1) for name in tables[-1]}
    assert {str(ticket.budget): ticket.num_parameters for ticket in tickets} == {
        "50%": 524, "20%rows": 26 * toys.WIDTH, "10%": 104
    }  # fmt: skip
    assert nonzero <= 104  # after the last pruning
    for ticket, other, whole in zip(tickets, others, tables, strict=True):
        for name in whole:
            assert torch.equal(ticket.masks[name], other.masks[name])
            assert torch.equal(ticket.initial.values[name], initial.state_dict()[f"{name}.weight"][ticket.masks[name]])
            assert torch.equal(ticket.final.values[name], whole[name][ticket.masks[name]])
        assert not any(mask[50:60].any() for name, mask in ticket.masks.items() if name.endswith("user"))  # never seen
        if ticket.budget.unit == "rows":
            norms = torch.cat([torch.linalg.vector_norm(table, dim=1) for table in whole.values()])
            kept = torch.cat([mask.any(1) for mask in ticket.masks.values()])
            assert norms[kept].min() >= norms[~kept][torch.cat(list(seen.values()))[~kept]].max()
            continue
        scores = [ScoresInMemory(whole[name].abs()) for name in whole]
        for mask, expected in zip(ticket.masks.values(), top_masks(scores, ticket.num_parameters), strict=True):
            assert torch.equal(mask, expected)


@pytest.mark.slow
def test_a_ticket_of_shards_retrains_the_unsharded_model_and_under_model_parallel(results):
    (_, first, _), (_, second, _), file = results
    ticket = load_ticket(file)
    model = toys.Clicks()
    assert ticket.apply_(model) == [f"tables.embedding_bags.{name}" for name in toys.names()]
    assert torch.equal(model.layer.weight, toys.Clicks().layer.weight)  # rewound
    toys.train(model, list(model.parameters()), 10)
    for name, value in model.state_dict().items():
        assert torch.equal(first[name], second[name])
        assert torch.allclose(first[name].float(), value.float(), atol=1e-5)
    assert sum(table.num_parameters for table in compact_(model)) == 104


@pytest.mark.slow
def test_attached_collections_stay_whole_and_learn_thresholds(results):
    (*_, (masks, kind)), (*_, (same, _)), _ = results
    assert kind == "UnshardedEmbeddingCollection"
    model = toys.Clicks(bags=False)
    pruning.attach_(model)
    searcher = Searcher(model, "50%", steps=STEPS, every=5)
    toys.train(model, list(model.parameters()), STEPS, searcher.step)
    for name, expected in searcher.tickets[0].masks.items():
        assert torch.equal(masks[name], same[name])
        assert (masks[name] == expected).float().mean() > 0.999


def test_detach_lets_a_collection_be_sharded_again():
    model = toys.Clicks()
    with pytest.raises(AttachError, match="no collection with attached or compact tables"):
        pruning.keep_unsharded_(model)
    pruning.attach_(model, where="*t_user")
    assert type(model.tables).__name__ == "UnshardedEmbeddingBagCollection"
    pruning.detach_(model)
    assert type(model.tables) is toys.torchrec.EmbeddingBagCollection
