"""NumpyPredictor: predictions from a bundle without torch, for LR, FM, DeepFM and AutoInt over compact tables.

It starts several times faster than `Predictor` and needs a fraction of the memory. Dicts of plain values need no
polars. Results equal those of `Predictor` up to float rounding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from thresher._internal.storage.documents import damaged_file
from thresher._internal.storage.folder_manifest import read_unchanged
from thresher.compact.file import check_finite, map_safetensors
from thresher.compact.table import CompactTable
from thresher.data.encode.dict_rows import DictRows
from thresher.data.table import Bag
from thresher.errors import FormatError
from thresher.serving.few_rows import encode_few
from thresher.serving.manifest import REMEDY, Manifest, read_manifest
from thresher.serving.vocabularies import load_vocabularies

if TYPE_CHECKING:
    from thresher.data.encode.row_encoder import RowEncoder
    from thresher.data.table import EncodedRows


Floats = npt.NDArray[np.float32]
MODELS = ("lr", "fm", "deepfm", "autoint")
BATCH_ROWS = 8192


class NumpyPredictor:
    """Raw or encoded rows → probabilities, without torch."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.model_name = str(manifest.model.get("name"))
        if self.model_name not in MODELS:
            raise FormatError(
                f"{manifest.folder}: NumpyPredictor supports {', '.join(MODELS)}, not {self.model_name!r}. Use "
                "thresher.load_bundle."
            )
        self.schema = manifest.read_schema()
        self.network = map_safetensors(manifest.network_path)[1]
        if manifest.verified:
            check_finite(manifest.network_path, self.network)
        self.tables = manifest.load_tables(CompactTable.load)
        # read_manifest verified the checksums; read now, since the folder may be replaced before the first prediction
        self._vocabularies = load_vocabularies(manifest.folder, self.schema, verify=False)
        # the parts may not fit each other
        with damaged_file(f"bundle {manifest.folder}", REMEDY), np.errstate(all="ignore"):
            self._layers = deep_layers(self.network)
            if manifest.verified:
                self._predict_unknown()

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """Open a bundle. `verify=False` skips the checksums."""
        place = Path(folder)
        return read_unchanged(place, lambda: cls(read_manifest(place, verify=verify)))

    def _predict_unknown(self) -> None:
        """Predict a row of unknown values, which reads every part of the network."""
        fields = self.schema.fields
        offsets = np.array(self.schema.field_offsets, np.int32)[[field.pooling is None for field in fields]]
        dense = np.zeros((1, self.schema.num_dense), np.float32) if self.schema.dense else None
        bags = [
            Bag(at, np.empty(0, np.int32), np.zeros(2, np.int64), field.pooling)
            for at, field in enumerate(fields)
            if field.pooling is not None
        ]
        self.predict_ids(offsets[None], dense, bags)

    @cached_property
    def _dict_rows(self) -> DictRows:
        return DictRows(self.schema, self._vocabularies)

    @cached_property
    def encoder(self) -> "RowEncoder":
        """The encoder of data frames; it loads polars."""
        from thresher.data.encode.row_encoder import RowEncoder

        return RowEncoder(self.schema, self._vocabularies)

    def predict(self, rows: Any) -> Floats | float:
        """Probabilities of raw rows: one dict (returns one number), a list of dicts, a polars or pandas frame."""
        few = [rows] if isinstance(rows, Mapping) else rows
        encoded = encode_few(self._dict_rows, few, limit=None) if isinstance(few, list | tuple) else None
        if encoded is None:
            from thresher.serving.request_rows import rows_to_frame

            encoded = self.encoder.encode_frame(rows_to_frame(rows, self.schema))
        probabilities = self.predict_rows(encoded)
        return float(probabilities[0]) if isinstance(rows, Mapping) else probabilities

    def predict_rows(self, rows: "EncodedRows") -> Floats:
        return self.predict_ids(rows.ids, rows.dense, rows.bags)

    def predict_ids(self, ids: npt.NDArray[Any], dense: Floats | None = None, bags: "Sequence[Bag]" = ()) -> Floats:
        """Probabilities of global ids `[n, F]`, dense inputs `[n, K]`, and multi-valued fields."""
        probabilities = np.empty(len(ids), np.float32)
        for first in range(0, len(ids), BATCH_ROWS):
            part = slice(first, min(first + BATCH_ROWS, len(ids)))
            logits = self._logits(ids, dense, bags, part)
            probabilities[part] = np.exp(-np.logaddexp(np.float32(0), -logits))  # sigmoid without overflow
        return probabilities

    def _logits(self, ids: Any, dense: Any, bags: Any, part: slice) -> Floats:
        logits = np.zeros(part.stop - part.start, np.float32)
        if "linear_term.bias" in self.network:  # AutoInt may have none
            weights = self._vectors("linear_term.weights", ids, bags, part)  # [n, F, 1]
            logits = logits + weights.sum((1, 2)) + self.network["linear_term.bias"]
        if "linear_term.dense.weight" in self.network:
            logits = logits + np.asarray(dense[part]) @ self.network["linear_term.dense.weight"][0]
        if self.model_name == "lr":
            return logits
        vectors = self._vectors("embedding", ids, bags, part)  # [n, F, D]
        if self.model_name == "autoint":
            logits = logits + attention_term(self.network, vectors, int(self.manifest.model["num_heads"]))
        else:
            logits = logits + fm_term(vectors)
        if self._layers:
            inputs = vectors.reshape(len(vectors), -1)
            logits = logits + deep_term(self._layers, inputs if dense is None else np.hstack([inputs, dense[part]]))
        return logits

    def _vectors(self, name: str, ids: Any, bags: Any, part: slice) -> Floats:
        """Vectors `[n, F, D]` of one table; multi-valued fields come last."""
        table = self.tables[name]
        vectors = table.lookup(np.asarray(ids[part]))
        pooled = []
        for bag in bags:
            offsets = bag.offsets[part.start : part.stop + 1]
            pooled.append(table.lookup_bags(bag.values[offsets[0] : offsets[-1]], offsets - offsets[0], bag.pooling))
        return np.concatenate([vectors, np.stack(pooled, 1)], axis=1) if pooled else vectors


def fm_term(vectors: Floats) -> Floats:
    """`models.layers.fm_term`: vectors `[n, F, D]` → `[n]`."""
    total = np.ones(vectors.shape[1], np.float32) @ vectors  # [n, D]
    found: Floats = 0.5 * (np.square(total) - np.einsum("nfd,nfd->nd", vectors, vectors)).sum(1)
    return found


@cache  # a failed import is slow
def choose_product() -> Callable[[Floats, Floats], Floats]:
    """`inputs @ weight`: vectors of a pruned table are mostly zero, which the kernel skips."""
    try:
        from thresher.kernels.sparse_products import sparse_product
    except ImportError:  # numba is not installed
        return np.matmul
    return sparse_product


@dataclass(frozen=True)
class DeepLayer:
    """A linear layer and the batch norm behind it, if there is one: mean, deviation, weight, bias."""

    weight: Floats
    bias: Floats
    norm: tuple[Floats, Floats, Floats, Floats] | None

    def __call__(self, inputs: Floats) -> Floats:
        outputs: Floats = choose_product()(inputs, self.weight) + self.bias
        if self.norm is None:
            return outputs
        mean, deviation, weight, bias = self.norm
        return (outputs - mean) / deviation * weight + bias


def deep_layers(network: Mapping[str, npt.NDArray[Any]]) -> list[DeepLayer]:
    """The layers of `models.layers.DeepTerm` with their stored statistics; none if the model has no deep term."""
    prefix = "deep_term.layers"
    # a hidden layer takes up to four positions in the sequence, and only its linear layer has a 2-D weight
    weights = ((at, network.get(f"{prefix}.{at}.weight")) for at in range(4 * len(network)))
    layers = []
    for at, weight in weights:
        if weight is None or weight.ndim != 2:
            continue
        norm, name = None, f"{prefix}.{at + 1}"
        if f"{name}.running_mean" in network:
            deviation = np.sqrt(network[f"{name}.running_var"] + np.float32(1e-5))  # torch's default epsilon
            norm = network[f"{name}.running_mean"], deviation, network[f"{name}.weight"], network[f"{name}.bias"]
        layers.append(DeepLayer(np.ascontiguousarray(weight.T), network[f"{prefix}.{at}.bias"], norm))
    return layers


def deep_term(layers: Sequence[DeepLayer], inputs: Floats) -> Floats:
    """`models.layers.DeepTerm` in evaluation mode: hidden layers end with ReLU; `[n]`."""
    outputs = inputs
    for layer in layers[:-1]:
        outputs = np.maximum(layer(outputs), np.float32(0))
    return layers[-1](outputs)[:, 0]


def attention_term(network: Mapping[str, npt.NDArray[Any]], vectors: Floats, num_heads: int) -> Floats:
    """All layers of attention and the linear unit after them. Vectors `[B, F, D]` → logits `[B]`."""
    for at in count():
        if f"attention.{at}.query.weight" not in network:
            break
        vectors = _attend(network, f"attention.{at}", vectors, num_heads)
    logits: Floats = vectors.reshape(len(vectors), -1) @ network["output.weight"][0] + network["output.bias"][0]
    return logits


def _attend(network: Mapping[str, npt.NDArray[Any]], prefix: str, vectors: Floats, num_heads: int) -> Floats:
    """One layer: vectors `[B, F, D]` → `[B, F, A]`. Dot products are not scaled."""
    B, F, D = vectors.shape
    names = [name for name in ("query", "key", "value", "residual") if f"{prefix}.{name}.weight" in network]
    weights = np.concatenate([network[f"{prefix}.{name}.weight"] for name in names])  # [3A or 4A, D]
    projected = (vectors.reshape(B * F, D) @ weights.T).reshape(B, F, len(names), num_heads, -1)
    query, key, value = projected[:, :, :3].transpose(2, 0, 3, 1, 4)  # [B, H, F, A/H] each
    scores = query @ key.swapaxes(2, 3)  # [B, H, F, F]
    shares = np.exp(scores - scores.max(axis=3, keepdims=True))
    shares /= shares.sum(axis=3, keepdims=True)
    attended = (shares @ value).swapaxes(1, 2)  # [B, F, H, A/H]
    if len(names) == 4:
        attended = attended + projected[:, :, 3]
    outputs: Floats = np.maximum(attended, 0).reshape(B, F, -1)
    return outputs
