"""What makes a sharded search as good as one of whole tables: its rule, in parts. Test AUC at 5 %.

    THRESHER_DATA_DIR=… torchrun --nproc-per-node 1 benchmarks/sharded_rules.py

Data, model and retraining are those of torchrec_search.py. A rule may subtract the threshold from the magnitudes of
kept entries, or leave these as they are; pruned entries may stay 0, or grow until the next pruning. Writes
benchmarks/results/sharded_rules.json.
"""

import argparse
from pathlib import Path

import torch
from torch import distributed

from environment import run_environment
from thresher._internal.storage.files import write_json
from thresher.integrations.torchrec import ShardedSearcher
from torchrec_search import open_table, retrained, search

RESULT = Path(__file__).parent / "results" / "sharded_rules.json"


class KeepsMagnitudes(ShardedSearcher):
    """Does not subtract the threshold."""

    def _local_cut(self, num_kept):
        return super()._local_cut(num_kept)[0], 0.0


class Regrows(ShardedSearcher):
    """Forgets the masks after each pruning, so that lookups read what updates made of pruned entries."""

    def prune(self, steps):
        super().prune(steps)
        for shard in self.shards:
            shard.kept = None


class KeepsMagnitudesAndRegrows(KeepsMagnitudes, Regrows):
    """Gradual magnitude pruning between steps."""


RULES = {
    "magnitudes kept, pruned entries grow": KeepsMagnitudesAndRegrows,
    "magnitudes kept, pruned entries stay 0": KeepsMagnitudes,
    "magnitudes reduced, pruned entries grow": Regrows,
    "magnitudes reduced, pruned entries stay 0": ShardedSearcher,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("encoded/movielens-1m-ids"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--search-epochs", type=int, default=9)
    parser.add_argument("--max-epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    distributed.init_process_group("gloo")
    table = open_table(arguments.data)
    result = {"seed": arguments.seed, "search_epochs": arguments.search_epochs, "environment": run_environment()}
    for name, rule in RULES.items():
        torch.manual_seed(1000 * arguments.seed)
        result[name] = retrained(search(table, arguments.search_epochs, rule), table, arguments.max_epochs)
        print(name, result[name], flush=True)
        write_json(arguments.out, result)


if __name__ == "__main__":
    main()
