"""A trained model as the dense model of a run: that of an earlier run, or of a bundle. It is not trained again."""

from pathlib import Path

from torch import Tensor, nn

from thresher._internal.mapped_tensors import load_tensor_state_, tensor_state
from thresher.compact.method_table import StoredEmbedding
from thresher.compact.table import CompactTable
from thresher.data.encode.row_encoder import RowEncoder
from thresher.data.table import EncodedTable
from thresher.errors import ConfigError
from thresher.experiment.dense_start import DenseStart
from thresher.experiment.run.run_folder import Run
from thresher.experiment.run.run_parts import ENCODED
from thresher.serving.bundle import open_bundle


def load_start(folder: Path, table: EncodedTable) -> DenseStart:
    """The trained model of a run or a bundle, for rows that were encoded with its vocabularies.

    Pruned entries of a bundle start as they read, so a smaller model can be made of a pruned one.
    """
    if (folder / "bundle.json").exists():
        bundle = open_bundle(folder)
        _check_vocabularies(folder, bundle.encoder, table)
        return DenseStart(_dense_state(bundle.model, folder), None)
    if (folder / "config.toml").exists():
        run = Run.open(folder)
        if not run.dense_weights.exists():
            raise ConfigError(
                f"run {folder} holds no dense model. Its search did not start from one (effort paper), or it has not "
                "trained it yet. Resume it, or name another run or a bundle."
            )
        _check_vocabularies(folder, RowEncoder.load(folder / ENCODED), table)
        return DenseStart.load(run.dense_weights)
    raise ConfigError(f"start_from is {folder}, which is neither a run nor a bundle. Name the folder of one.")


def load_weights_(model: nn.Module, start: DenseStart, folder: Path) -> None:
    """Load a trained model into one that was built with the settings of this run."""
    own = {name: tuple(tensor.shape) for name, tensor in tensor_state(model).items()}
    found = {name: tuple(tensor.shape) for name, tensor in start.state.items()}
    if different := sorted(name for name in own.keys() | found.keys() if own.get(name) != found.get(name)):
        name = different[0]
        shapes = f"{name} has shape {found.get(name, 'none')}, expected {own.get(name, 'none')}"
        raise ConfigError(
            f"the model in {folder} does not fit the settings of this run ({shapes}). Use the same model settings and "
            "embedding_dim."
        )
    load_tensor_state_(model, start.state)


def _check_vocabularies(folder: Path, encoder: RowEncoder, table: EncodedTable) -> None:
    """Raise unless the ids of the table mean the same values as those of the trained model."""
    own = RowEncoder.load(table.folder)
    pairs = zip(encoder.vocabularies, own.vocabularies, strict=False)
    # a bundle may omit values of dropped features
    same = len(encoder.vocabularies) == len(own.vocabularies) and all(
        one.size == two.size and dict(one.items()).items() <= dict(two.items()).items() for one, two in pairs
    )
    if not same:
        raise ConfigError(
            f"the model in {folder} was trained with other vocabularies than these rows have. Set data.vocabulary_like "
            "to the encoded table that it was trained on."
        )


def _dense_state(model: nn.Module, folder: Path) -> dict[str, Tensor]:
    """The `state_dict` of a bundle's model with dense tables."""
    import torch

    state = dict(tensor_state(model))
    for name, module in model.named_modules():
        if isinstance(module, StoredEmbedding):
            if not isinstance(module.table, CompactTable):
                raise ConfigError(f"{folder}: table {name} is stored in the form of its method. Name another model.")
            state[f"{name}.weight"] = torch.from_numpy(module.table.to_dense())
    return state
