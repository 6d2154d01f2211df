"""TorchRec: PEP on embedding collections, and a search over the shards of DistributedModelParallel.

    from thresher.integrations import torchrec as pruning

    sharded = DistributedModelParallel(model, ...)
    searcher = pruning.ShardedSearcher(sharded, ["5%"], steps=20_000)  # in every process
    ...
    searcher.step()
    ticket = searcher.tickets[0]  # an ordinary ticket of the unsharded model

Tables that fit into each process can be searched with learned thresholds instead: `attach_` and `thresher.Searcher`.
"""

import warnings

from thresher.errors import MissingExtraError

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # FBGEMM deprecates modules that it imports itself
        import torchrec as _torchrec  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        f"thresher.integrations.torchrec needs TorchRec and FBGEMM ({error}). Run `make torchrec` in a clone of the "
        "repository, or pip install --no-deps -c constraints.txt -r requirements-torchrec.txt"
    ) from error

from thresher.integrations.sharding.collections import attach_, detach_, keep_unsharded_
from thresher.integrations.sharding.dropped_rows import RemappedCollection, drop_rows_
from thresher.integrations.sharding.sharded_searcher import ShardedSearcher

__all__ = ["RemappedCollection", "ShardedSearcher", "attach_", "detach_", "drop_rows_", "keep_unsharded_"]
