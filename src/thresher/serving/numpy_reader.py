"""NumpyPredictor: a bundle read without torch, for small services. LR, FM and DeepFM over compact tables.

Encoded rows need numpy and safetensors files only; raw rows also need polars, which reads the vocabularies. Same
answers as `Predictor` to float rounding.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from thresher.compact.file import map_safetensors
from thresher.compact.table import CompactTable
from thresher.errors import FormatError
from thresher.serving.bundle_files import BundleFacts, read_bundle_facts

if TYPE_CHECKING:
    from thresher.data.encode.row_encoder import EncodedBag, EncodedRows, RowEncoder

Floats = npt.NDArray[np.float32]
MODELS = ("lr", "fm", "deepfm")
BATCH_ROWS = 8192


class NumpyPredictor:
    """Raw or encoded rows in, probabilities out, without torch."""

    def __init__(self, about: BundleFacts) -> None:
        self.name = str(about.model.get("name"))
        if self.name not in MODELS:
            raise FormatError(
                f"{about.folder}: the numpy reader knows the models {', '.join(MODELS)}, not {self.name!r}; "
                "use thresher.load_bundle"
            )
        self.about = about
        self.tables = {name: _load_table(about, name) for name in about.tables}
        self.network = map_safetensors(about.network_path)[1]
        self._encoder: RowEncoder | None = None

    def __repr__(self) -> str:
        stored = sum(table.storage_bytes for table in self.tables.values())
        return f"{type(self).__name__}({str(self.about.folder)!r}, model={self.name!r}, storage_bytes={stored:,})"

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """Open a bundle. `verify=False` skips the checksums."""
        return cls(read_bundle_facts(Path(folder), verify=verify))

    @property
    def encoder(self) -> "RowEncoder":
        if self._encoder is None:
            from thresher.data.encode.row_encoder import RowEncoder

            self._encoder = RowEncoder.load(self.about.folder)
        return self._encoder

    def predict(self, rows: Any) -> Floats | float:
        """Probabilities of raw rows: one dict (one number), a list of dicts, a polars or pandas frame."""
        from thresher.serving.request_rows import rows_to_frame

        encoded = self.encoder.encode_frame(rows_to_frame(rows, self.encoder.schema))
        probabilities = self.predict_rows(encoded)
        return float(probabilities[0]) if isinstance(rows, Mapping) else probabilities

    def predict_rows(self, rows: "EncodedRows") -> Floats:
        """Probabilities of encoded rows, multi-valued fields included."""
        poolings = [field.pooling for field in self.encoder.schema.bag_fields] if rows.bags else []
        return self.predict_ids(rows.ids, rows.dense, list(zip(rows.bags, poolings, strict=True)))

    def predict_ids(
        self,
        ids: npt.NDArray[np.integer[Any]],
        dense: Floats | None = None,
        bags: "Sequence[tuple[EncodedBag, Any]]" = (),
    ) -> Floats:
        """Probabilities of global ids `[n, F]`, dense inputs `[n, K]`, and bags with their pooling."""
        probabilities = np.empty(len(ids), np.float32)
        for first in range(0, len(ids), BATCH_ROWS):
            last = min(first + BATCH_ROWS, len(ids))
            logits = self._logits(ids[first:last], None if dense is None else dense[first:last], bags, first, last)
            probabilities[first:last] = np.exp(-np.logaddexp(np.float32(0), -logits))  # never overflows
        return probabilities

    def _logits(self, ids: Any, dense: Floats | None, bags: Any, first: int, last: int) -> Floats:
        weights = self._vectors("linear_term.weights", ids, bags, first, last)  # [n, F, 1]
        logits: Floats = weights.sum((1, 2)) + self.network["linear_term.bias"]
        if "linear_term.dense.weight" in self.network:
            logits = logits + np.asarray(dense) @ self.network["linear_term.dense.weight"][0]
        if self.name == "lr":
            return logits
        vectors = self._vectors("embedding", ids, bags, first, last)  # [n, F, D]
        logits = logits + 0.5 * (np.square(vectors.sum(1)) - np.square(vectors).sum(1)).sum(1)
        if self.name == "deepfm":
            inputs = vectors.reshape(len(vectors), -1)
            logits = logits + perceptron(self.network, inputs if dense is None else np.hstack([inputs, dense]))
        return logits

    def _vectors(self, name: str, ids: Any, bags: Any, first: int, last: int) -> Floats:
        table = self.tables[name]
        vectors = table.lookup(np.asarray(ids))
        pooled = []
        for bag, pooling in bags:  # multi-valued fields come after the others
            offsets = bag.offsets[first : last + 1]
            pooled.append(table.lookup_bags(bag.values[offsets[0] : offsets[-1]], offsets - offsets[0], pooling))
        return np.concatenate([vectors, np.stack(pooled, 1)], axis=1) if pooled else vectors


def perceptron(network: Mapping[str, npt.NDArray[Any]], inputs: Floats, prefix: str = "deep_term.layers") -> Floats:
    """`models.layers.DeepTerm` at prediction time: linear, batch norm with its stored statistics, ReLU; one output."""
    # a hidden layer takes up to four places, of which the linear one alone has two tensors
    weights = ((at, network.get(f"{prefix}.{at}.weight")) for at in range(4 * len(network)))
    linear = [at for at, weight in weights if weight is not None and weight.ndim == 2]
    outputs = inputs
    for at in linear:
        outputs = outputs @ network[f"{prefix}.{at}.weight"].T + network[f"{prefix}.{at}.bias"]
        norm = f"{prefix}.{at + 1}"
        if f"{norm}.running_mean" in network:
            spread = np.sqrt(network[f"{norm}.running_var"] + np.float32(1e-5))  # torch's default epsilon
            outputs = (outputs - network[f"{norm}.running_mean"]) / spread
            outputs = outputs * network[f"{norm}.weight"] + network[f"{norm}.bias"]
        if at != linear[-1]:
            outputs = np.maximum(outputs, 0)
    return outputs[:, 0]


def _load_table(about: BundleFacts, name: str) -> CompactTable:
    table = CompactTable.load(about.table_path(name), verify=False)  # the file's checksum is the bundle's business
    if table.shape != about.tables[name]:
        raise FormatError(
            f"{about.folder}: table {name!r} has shape {table.shape}, bundle.json says {about.tables[name]}"
        )
    return table
