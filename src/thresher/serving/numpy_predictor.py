"""NumpyPredictor: predictions from a bundle without torch, for LR, FM, DeepFM and AutoInt over compact tables.

It starts several times faster than `Predictor` and needs a fraction of the memory. Dicts of plain values need no
polars. Results equal those of `Predictor` up to float rounding.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
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
from thresher.serving.numpy_layers import attention_term, choose_product, deep_layers, deep_term, fm_term
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
        self.vocabularies = load_vocabularies(manifest.folder, self.schema, verify=False)
        # the parts may not fit each other
        with damaged_file(f"bundle {manifest.folder}", REMEDY), np.errstate(all="ignore"):
            self._layers = deep_layers(self.network)
            # the layers are copies: without the rest of the file, its pages need not stay in memory
            others = {name: value for name, value in self.network.items() if not name.startswith("deep_term.")}
            self.network = {name: np.array(value) for name, value in others.items()}
            if manifest.verified:
                self._predict_unknown()

    @classmethod
    def load(cls, folder: str | Path, *, verify: bool = True) -> Self:
        """Open a bundle. `verify=False` skips the checksums."""
        place = Path(folder)
        return read_unchanged(place, lambda: cls(read_manifest(place, verify=verify)))

    def _predict_unknown(self) -> None:
        """Predict two rows of unknown values, which reads every part of the network; a wrong shape is an error."""
        fields = self.schema.fields
        offsets = np.array(self.schema.field_offsets, np.int32)[[field.pooling is None for field in fields]]
        dense = np.zeros((2, self.schema.num_dense), np.float32) if self.schema.dense else None
        bags = [
            Bag(at, np.empty(0, np.int32), np.zeros(3, np.int64), field.pooling)
            for at, field in enumerate(fields)
            if field.pooling is not None
        ]
        self.predict_ids(np.stack([offsets, offsets]), dense, bags)

    @cached_property
    def _dict_rows(self) -> DictRows:
        return DictRows(self.schema, self.vocabularies)

    @cached_property
    def encoder(self) -> "RowEncoder":
        """The encoder of data frames; it loads polars."""
        from thresher.data.encode.row_encoder import RowEncoder

        return RowEncoder(self.schema, self.vocabularies)

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
        terms, product = self._first_terms(ids, bags, part)
        logits = logits + terms
        if self._layers:
            if dense is not None:
                product += np.asarray(dense[part], np.float32) @ self._layers[0].weight[self._num_inputs :]
            logits = logits + deep_term(self._layers, product)
        return logits

    @cached_property
    def _num_inputs(self) -> int:
        """Numbers in the vectors of a row."""
        return self.schema.num_fields * self.tables["embedding"].embedding_dim

    def _first_terms(self, ids: Any, bags: Any, part: slice) -> tuple[Floats, Floats]:
        """The FM term or attention `[n]`, and the product of the vectors with the first layer's weight `[n, k]`."""
        empty = np.zeros((self._num_inputs, 0), np.float32)
        weight = self._layers[0].weight[: self._num_inputs] if self._layers else empty
        if self.model_name != "autoint" and not bags:
            found = self.tables["embedding"].row_terms(np.asarray(ids[part]), weight)
            if found is not None:
                return found
        vectors = self._vectors("embedding", ids, bags, part)  # [n, F, D]
        product = choose_product()(vectors.reshape(len(vectors), -1), weight)
        if self.model_name == "autoint":
            return attention_term(self.network, vectors, int(self.manifest.model["num_heads"])), product
        return fm_term(vectors), product

    def _vectors(self, name: str, ids: Any, bags: Any, part: slice) -> Floats:
        """Vectors `[n, F, D]` of one table; multi-valued fields come last."""
        table = self.tables[name]
        vectors = table.lookup(np.asarray(ids[part]))
        pooled = []
        for bag in bags:
            offsets = bag.offsets[part.start : part.stop + 1]
            pooled.append(table.lookup_bags(bag.values[offsets[0] : offsets[-1]], offsets - offsets[0], bag.pooling))
        return np.concatenate([vectors, np.stack(pooled, 1)], axis=1) if pooled else vectors
