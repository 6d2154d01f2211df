"""Models with TorchRec's collections, their batches, and their sharding, for the tests of two processes."""

import logging
import warnings

import torch
import torch.distributed as distributed
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torchrec
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from torchrec.distributed import DistributedModelParallel
    from torchrec.distributed.embedding import EmbeddingCollectionSharder
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.sharding_plan import (
        column_wise,
        construct_module_sharding_plan,
        data_parallel,
        row_wise,
        table_wise,
    )
    from torchrec.distributed.types import ShardingPlan

logging.getLogger("torchrec").setLevel(logging.ERROR)
SIZES = {"shop": 41, "user": 60, "item": 30}
WIDTH, BATCH = 8, 64


class Clicks(nn.Module):
    """Users click items of their group; shops are noise. The last ten users never occur."""

    def __init__(self, bags=True, weighted=False, **settings):
        super().__init__()
        torch.manual_seed(0)
        config, collection = torchrec.EmbeddingConfig, torchrec.EmbeddingCollection
        if bags:
            config, collection = torchrec.EmbeddingBagConfig, torchrec.EmbeddingBagCollection
        tables = [
            config(name=f"t_{name}", embedding_dim=WIDTH, num_embeddings=size, feature_names=[name], **settings)
            for name, size in SIZES.items()
        ]
        self.tables, self.bags = collection(tables=tables, **({"is_weighted": True} if weighted else {})), bags
        self.layer = nn.Linear(len(SIZES) * WIDTH, 1)

    def forward(self, features):
        found = self.tables(features)
        if self.bags:
            vectors = found.values().view(-1, len(SIZES), WIDTH)
        else:  # one id of each feature in a row
            vectors = torch.stack([found[name].values() for name in SIZES], 1)
        return (vectors[:, 1] * vectors[:, 2]).sum(1) + self.layer(vectors.flatten(1)).squeeze(1)


def batch(step, rank=None, size=2):
    """The global batch of a step, or the part of a process."""
    draw = torch.Generator().manual_seed(step)
    ids = {name: torch.randint(rows, (BATCH,), generator=draw) for name, rows in SIZES.items()}
    ids["user"] = ids["user"] % (SIZES["user"] - 10)
    labels = (ids["user"] % 3 == ids["item"] % 3).float()
    part = slice(None) if rank is None else slice(rank * BATCH // size, (rank + 1) * BATCH // size)
    values = [ids[name][part] for name in SIZES]
    lengths = torch.ones(sum(map(len, values)), dtype=torch.int64)
    features = torchrec.KeyedJaggedTensor(keys=list(SIZES), values=torch.cat(values), lengths=lengths)
    return features, labels[part]


def every_id():
    """A batch that looks up each row, also those that never occur in training."""
    most = max(SIZES.values())
    values = [torch.arange(most) % size for size in SIZES.values()]
    lengths = torch.ones(most * len(SIZES), dtype=torch.int64)
    return torchrec.KeyedJaggedTensor(keys=list(SIZES), values=torch.cat(values), lengths=lengths)


def shard(model, kinds, within="tables"):
    """DistributedModelParallel with a kind of sharding for each table, and stochastic gradient descent."""
    ways = {
        "row": lambda: row_wise(compute_kernel="fused"),
        "table": lambda: table_wise(rank=distributed.get_world_size() - 1, compute_kernel="fused"),
        "column": lambda: column_wise(ranks=list(range(distributed.get_world_size())), compute_kernel="fused"),
        "data": data_parallel,
    }
    tables = model.get_submodule(within)
    bags = isinstance(tables, torchrec.EmbeddingBagCollection)
    sharder = (EmbeddingBagCollectionSharder if bags else EmbeddingCollectionSharder)(
        fused_params={"learning_rate": 0.5, "optimizer": EmbOptimType.EXACT_SGD}
    )
    plan = construct_module_sharding_plan(
        tables,
        {name: ways[kind]() for name, kind in zip(names(), kinds, strict=True)},
        sharder=sharder,
        local_size=distributed.get_world_size(),
        world_size=distributed.get_world_size(),
        device_type="cpu",
    )
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sharded = DistributedModelParallel(
            model, device=torch.device("cpu"), plan=ShardingPlan({within: plan}), sharders=[sharder]
        )
    with torch.no_grad():  # on a CPU, TorchRec draws new weights for an EmbeddingBagCollection
        for name, value in sharded.state_dict().items():
            for own, part in parts(value):
                own.copy_(state[name][part])
    return sharded


def parts(value):
    """The tensors of a sharded or whole tensor in this process, each with its place."""
    if not hasattr(value, "local_shards"):
        return [(value, ...)]
    found = []
    for shard in value.local_shards():
        (row, column), (rows, columns) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
        found.append((shard.tensor, (slice(row, row + rows), slice(column, column + columns))))
    return found


def names():
    return [f"t_{name}" for name in SIZES]


def train(model, parameters, steps, after_step=lambda: None, rank=None):
    optimizer = torch.optim.SGD(parameters, lr=0.5)
    for step in range(steps):
        features, labels = batch(step, rank)
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(model(features), labels).backward()
        optimizer.step()
        after_step()
