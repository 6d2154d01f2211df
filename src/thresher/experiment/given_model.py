"""What `prune_model` is given, looked at before it works: a folder of other work, outputs that are no logits."""

import hashlib
import re
import warnings
from collections.abc import Sequence
from pathlib import Path

from torch import nn

from thresher._internal.files import read_json, write_json
from thresher.attach import AttachedTable
from thresher.attach.compact_tables import put_compact_
from thresher.data.batches.split_batches import SplitBatches, first_batch_digest
from thresher.errors import ConfigError
from thresher.training.epochs import CHECKPOINT
from thresher.training.loop import predict
from thresher.training.seeding import isolated_rng

MANY_OUTPUTS = 32
"""So many logits of a trained model do not all lie between 0 and 1."""
GIVEN = "given.json"
"""In a folder of `prune_model`: short names of what it was given, so that work on something else is not taken up."""


def check_given(folder: Path, model: nn.Module, data: SplitBatches) -> None:
    """Refuse a folder with work on another model or other rows, which checkpoints of the same size do not show."""
    built = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(model))  # functions are printed with where they lie in memory
    with isolated_rng():
        given = {
            "model": hashlib.sha256(built.encode()).hexdigest()[:16],
            "training rows": first_batch_digest(data.train),
            "validation rows": first_batch_digest(data.validation),
        }
    path, has_work = folder / GIVEN, any(folder.rglob(CHECKPOINT))
    if has_work and path.exists():
        before = read_json(path)
        if others := [name for name, digest in given.items() if before.get(name, digest) != digest]:
            raise ConfigError(
                f"{folder} holds work on another model or other rows (other: {', '.join(others)}); choose another "
                "folder, or delete it to start anew"
            )
    write_json(path, given)


def check_runs_compact(attached: nn.Module, tables: Sequence[AttachedTable], data: SplitBatches) -> None:
    """Refuse a model that reads the weight of a table, before it is searched: compact tables have none.

    Args:
        attached: a copy to try it with: its tables become compact ones of which nothing is kept.
    """
    for table in tables:
        nothing = attached.get_submodule(table.name).get_parameter("weight").new_empty(0)
        put_compact_(attached, table.name, nothing.long(), nothing)
    with isolated_rng():
        try:
            next(predict(attached, data.validation), None)
        except AttributeError as error:
            raise ConfigError(
                f"{type(attached).__qualname__} does not run with compact tables, with which it is retrained: {error}"
            ) from error


def warn_of_probabilities(model: nn.Module, data: SplitBatches) -> None:
    """Many models of other libraries end in a sigmoid; training would put another one on top, and learn badly."""
    for _, outputs in predict(model, data.validation):
        if len(outputs) >= MANY_OUTPUTS and float(outputs.min()) >= 0.0 and float(outputs.max()) <= 1.0:
            warnings.warn(
                f"{type(model).__qualname__} gives numbers between 0 and 1 only, which look like probabilities, where "
                "logits are expected; wrap it: torch.logit(model(…), eps=1e-6)",
                stacklevel=3,
            )
        break
