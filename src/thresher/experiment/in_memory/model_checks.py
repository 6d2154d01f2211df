"""Checks of `prune_model`: that a folder belongs to the model and the rows, and that the model can be pruned."""

import copy
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from torch import nn

from thresher._internal.storage.files import read_json, write_json
from thresher.attach.attach import AttachedTable
from thresher.attach.compact_tables import put_compact_
from thresher.data.batches.split_batches import SplitBatches, first_batch_digest
from thresher.errors import ConfigError, warn_user
from thresher.training.checkpoint import isolated_rng
from thresher.training.epoch import predict
from thresher.training.run_state import CHECKPOINT

MIN_OUTPUTS = 32
"""With fewer outputs, logits may lie between 0 and 1 by chance."""
INPUTS = "inputs.json"
"""Digests of the model and rows that a folder of `prune_model` belongs to."""


def check_folder(folder: Path, model: nn.Module, data: SplitBatches) -> None:
    """Raise if a folder holds work on another model or other rows, which equal shapes would not reveal."""
    structure = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(model))  # without memory addresses of functions
    with isolated_rng():
        inputs = {
            "model": hashlib.sha256(structure.encode()).hexdigest()[:16],
            "training rows": first_batch_digest(data.train),
            "validation rows": first_batch_digest(data.validation),
        }
    path, has_work = folder / INPUTS, any(folder.rglob(CHECKPOINT))
    if has_work and path.exists():
        before = read_json(path)
        if changed := [name for name, digest in inputs.items() if before.get(name) != digest]:
            raise ConfigError(
                f"{folder} holds work on another model or other rows (changed: {', '.join(changed)}). Choose another "
                "folder, or delete this one."
            )
    write_json(path, inputs)


def attach_to_copy(
    model: nn.Module, attach: Callable[[nn.Module], list[AttachedTable]], data: SplitBatches
) -> list[AttachedTable]:
    """The tables of a model that are searched, found in a copy of it.

    Raises if the model uses an attribute that the compact tables of retraining do not have, such as a method.
    """
    attached = copy.deepcopy(model)
    tables = attach(attached)
    for table in tables:
        nothing = attached.get_submodule(table.name).get_parameter("weight").new_empty(0)
        put_compact_(attached, table.name, nothing.long(), nothing)
    with isolated_rng():
        try:
            next(predict(attached, data.validation), None)
        except AttributeError as error:
            raise ConfigError(
                f"{type(attached).__qualname__} does not run with the compact tables of retraining: {error}"
            ) from error
    return tables


def warn_of_probabilities(model: nn.Module, data: SplitBatches) -> None:
    """Warn if a model returns probabilities: training applies a sigmoid to its outputs."""
    for _, _, outputs in predict(model, data.validation):
        if len(outputs) >= MIN_OUTPUTS and float(outputs.min()) >= 0.0 and float(outputs.max()) <= 1.0:
            warn_user(
                f"{type(model).__qualname__} returns only values between 0 and 1, which look like probabilities, where "
                "logits are expected. Wrap it: torch.logit(model(…), eps=1e-6).",
            )
        break
