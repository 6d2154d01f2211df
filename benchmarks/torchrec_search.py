"""A sharded search of a DLRM in two processes against searches of whole tables in one: test AUC at 5 %.

    THRESHER_DATA_DIR=… torchrun --nproc-per-node 2 benchmarks/torchrec_search.py

Trains TorchRec's DLRM (D = 16) on MovieLens-1M with user and movie ids, tables with Adagrad (fused, row-wise sharded,
where they are sharded). Compares the dense model, the ticket of ShardedSearcher, and PEP's ticket with learned
thresholds from whole tables; every ticket is retrained from the initial weights as compact tables in both processes.
Epochs are chosen on validation. Writes benchmarks/results/torchrec_search.json.
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from torch import distributed, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.models.dlrm import DLRM

from environment import run_environment
from thresher import MaskTicket, Searcher
from thresher._internal.storage.files import write_json
from thresher.data.config import DataConfig
from thresher.data.encode.encode import encode
from thresher.data.encode.sources import build_source
from thresher.data.table import EncodedTable
from thresher.integrations.torchrec import ShardedSearcher, attach_, keep_unsharded_
from thresher.training.metrics import auc

RESULT = Path(__file__).parent / "results" / "torchrec_search.json"
WIDTH, BATCH, BUDGET = 16, 1024, "5%"
FUSED = {"optimizer": EmbOptimType.EXACT_ADAGRAD, "learning_rate": 0.05}


class ByRows(EmbeddingBagCollectionSharder):
    def sharding_types(self, compute_device_type):
        return ["row_wise"]

    def compute_kernels(self, sharding_type, compute_device_type):
        return ["fused"]


class Ratings(nn.Module):
    """TorchRec's DLRM over the fields of an encoded table."""

    def __init__(self, table: EncodedTable) -> None:
        super().__init__()
        sizes = table.schema.field_sizes
        self.names = [f"field_{at}" for at in range(len(sizes))]
        pairs = zip(self.names, sizes, strict=True)
        tables = [EmbeddingBagConfig(size, WIDTH, name=name, feature_names=[name]) for name, size in pairs]
        self.dlrm = DLRM(EmbeddingBagCollection(tables), 1, [WIDTH], [64, 1])
        self.starts = torch.tensor([0, *np.cumsum(sizes)[:-1]])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        values = (ids.long() - self.starts).t().reshape(-1)
        bags = KeyedJaggedTensor(self.names, values, lengths=torch.ones(len(values), dtype=torch.int64))
        return self.dlrm(torch.zeros(len(ids), 1), bags).squeeze(1)


def is_table(name: str) -> bool:
    return "embedding_bags" in name and "deviation" not in name


def train_epoch(model: nn.Module, optimizers, split, epoch: int, after_step=lambda: None) -> None:
    """The global batches are the same for any number of processes."""
    order = np.random.default_rng(epoch).permutation(split.num_rows)
    size, rank = distributed.get_world_size(), distributed.get_rank()
    for start in range(0, len(order) - BATCH * 2 + 1, BATCH * 2):
        rows = order[start : start + BATCH * 2][rank::size]
        for optimizer in optimizers:
            optimizer.zero_grad()
        logits = model(torch.from_numpy(split.ids[rows]))
        binary_cross_entropy_with_logits(logits, torch.from_numpy(split.labels[rows]).float()).backward()
        for optimizer in optimizers:
            optimizer.step()
        after_step()


@torch.no_grad()
def auc_of(model: nn.Module, split) -> float:
    """The AUC over all rows; each process predicts all of them, because lookups need every process."""
    model.eval()
    parts = [model(torch.from_numpy(split.ids[at : at + 8192])) for at in range(0, split.num_rows, 8192)]
    model.train()
    return float(auc(split.labels, torch.cat(parts).numpy()))


def optimizers_of(model: nn.Module):
    named = dict(model.named_parameters())
    tables = [parameter for name, parameter in named.items() if is_table(name)]
    rest = [parameter for name, parameter in named.items() if not is_table(name)]
    return [torch.optim.Adagrad(tables, lr=FUSED["learning_rate"]), torch.optim.Adam(rest, lr=1e-3)]


def local_tensors(model: nn.Module) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in model.state_dict().values():
        found += [shard.tensor for shard in value.local_shards()] if hasattr(value, "local_shards") else [value]
    return found


def fit(model: nn.Module, table: EncodedTable, max_epochs: int) -> dict[str, float]:
    """Train until validation stops improving, and read the test split once, at the best epoch."""
    optimizers, best, at, kept = optimizers_of(model), 0.0, 0, []
    for epoch in range(1, max_epochs + 1):
        train_epoch(model, optimizers, table.split("train"), epoch)
        validation = auc_of(model, table.split("validation"))
        if validation > best:
            best, at, kept = validation, epoch, [value.detach().clone() for value in local_tensors(model)]
        elif epoch - at >= 2:
            break
    with torch.no_grad():
        for value, stored in zip(local_tensors(model), kept, strict=True):
            value.copy_(stored)
    return {"validation_auc": best, "test_auc": auc_of(model, table.split("test")), "epochs": at}


def search(table: EncodedTable, epochs: int, kind: type[ShardedSearcher] | type[Searcher]):
    """The ticket of a search of `epochs` epochs, of sharded or of whole tables."""
    model, sharded = Ratings(table), kind is not Searcher
    if not sharded:
        attach_(model)
    wrapped = DistributedModelParallel(model, sharders=[ByRows(FUSED)])
    steps = epochs * (table.split("train").num_rows // (BATCH * 2))
    searcher = kind(wrapped if sharded else model, BUDGET, steps=steps)
    optimizers = optimizers_of(wrapped)
    for epoch in range(1, epochs + 1):
        train_epoch(wrapped, optimizers, table.split("train"), epoch, searcher.step)
    return searcher.tickets[0]


def retrained(ticket: MaskTicket, table: EncodedTable, max_epochs: int) -> dict[str, float]:
    """The ticket retrained from the initial weights as compact tables."""
    model = Ratings(table)
    ticket.apply_(model)
    keep_unsharded_(model)
    return fit(DistributedModelParallel(model), table, max_epochs) | {"num_parameters": ticket.num_parameters}


def open_table(folder: Path) -> EncodedTable:
    """MovieLens-1M with user and movie ids, which the first process encodes."""
    if distributed.get_rank() == 0:
        data = str(Path(os.environ["THRESHER_DATA_DIR"]) / "ml-1m")
        encode(build_source(DataConfig(source="movielens-1m", data_dir=data, with_ids=True)), folder)
    distributed.barrier()
    return EncodedTable.open(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path("encoded/movielens-1m-ids"), help="folder of the encoded table"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--search-epochs", type=int, default=9)
    parser.add_argument("--max-epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    distributed.init_process_group("gloo")
    table = open_table(arguments.data)
    result = {"seed": arguments.seed, "search_epochs": arguments.search_epochs, "environment": run_environment()}
    result["processes"] = distributed.get_world_size()

    def finish(name: str, found: dict[str, float]) -> None:
        result[name] = found
        if distributed.get_rank() == 0:
            print(name, found, flush=True)
            write_json(arguments.out, result)

    seed = 1000 * arguments.seed + distributed.get_rank()  # each process draws its own shards
    torch.manual_seed(seed)
    dense = DistributedModelParallel(Ratings(table), sharders=[ByRows(FUSED)])
    finish("dense", fit(dense, table, arguments.max_epochs))
    for name, kind in (("sharded search", ShardedSearcher), ("whole tables", Searcher)):
        torch.manual_seed(seed)
        finish(name, retrained(search(table, arguments.search_epochs, kind), table, arguments.max_epochs))


if __name__ == "__main__":
    main()
