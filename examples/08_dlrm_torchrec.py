"""Prune a DLRM whose tables TorchRec shards by rows: torchrun --nproc-per-node 2 examples/08_dlrm_torchrec.py"""

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.models.dlrm import DLRM

from thresher import compact_
from thresher.integrations.torchrec import ShardedSearcher, keep_unsharded_

SIZES, STEPS, FUSED = {"user": 300, "item": 200}, 400, {"optimizer": EmbOptimType.EXACT_ADAGRAD, "learning_rate": 0.1}


class ByRows(EmbeddingBagCollectionSharder):
    sharding_types, compute_kernels = lambda self, device: ["row_wise"], lambda self, sharding, device: ["fused"]


def dlrm():
    tables = [EmbeddingBagConfig(rows, 16, name=name, feature_names=[name]) for name, rows in SIZES.items()]
    return DLRM(EmbeddingBagCollection(tables), 1, [16, 16], [16, 1])


def batch(step, size=256):
    draw = torch.Generator().manual_seed(1000 * step + torch.distributed.get_rank())
    users, items = (torch.randint(rows, (size,), generator=draw) for rows in SIZES.values())
    bags = KeyedJaggedTensor(list(SIZES), torch.cat([users, items]), lengths=torch.ones(2 * size, dtype=torch.int64))
    return torch.rand(size, 1, generator=draw), bags, (users % 3 == items % 3).float()


def train(model, after_step=lambda: None):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)  # sharded tables have no gradients: their kernels update
    for step in range(STEPS):
        *inputs, labels = batch(step)
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(*inputs).squeeze(1), labels).backward()
        optimizer.step()
        after_step()
    *inputs, labels = batch(STEPS, 4000)
    return float(((model(*inputs).squeeze(1) > 0) == labels.bool()).float().mean())


if __name__ == "__main__":
    torch.distributed.init_process_group("gloo")
    report = print if torch.distributed.get_rank() == 0 else str  # each process reads other rows; the first one prints
    dense, sharded = (DistributedModelParallel(dlrm(), sharders=[ByRows(FUSED)]) for _ in range(2))
    report(f"dense: accuracy {train(dense):.3f}")
    searcher = ShardedSearcher(sharded, "5%", steps=STEPS)
    train(sharded, searcher.step)
    pruned = dlrm()
    searcher.tickets[0].apply_(pruned)
    keep_unsharded_(pruned)  # compact tables are small: every process holds them
    report(f"5%: accuracy {train(DistributedModelParallel(pruned)):.3f}")
    for table in compact_(pruned):
        size = pruned.get_submodule(table.name).to_table().storage_bytes
        report(f"{table.name}: {size:,} bytes")
