"""A bundle's tables for users of scipy: a `csr_array` each, in the file format scipy itself reads."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from thresher._internal.files import atomic_folder, read_json, write_json
from thresher.compact.table import CompactTable
from thresher.errors import FormatError, MissingExtraError
from thresher.serving.bundle import Bundle, open_bundle

CSR, NETWORK = "csr.json", "network.safetensors"
"""Beside the tables: their names, so that a folder is known for ours; and the other weights."""


def csr_file_names(folder: Path) -> set[str]:
    """The files `export_csr` wrote into a folder; none if it did not."""
    if not (folder / CSR).is_file():
        return set()
    return {CSR, NETWORK, *(f"{name}.npz" for name in read_json(folder / CSR).get("tables", []))}


def to_csr(table: CompactTable) -> Any:
    """A `scipy.sparse.csr_array` of a table's entries, kept zeros included."""
    from scipy.sparse import csr_array

    positions, values = table.entries()
    rows, columns = np.divmod(positions, table.embedding_dim)
    starts = np.searchsorted(rows, np.arange(table.num_features + 1))
    return csr_array((values, columns, starts), shape=table.shape)


def export_csr(bundle: Bundle | str | Path, folder: str | Path) -> Path:
    """Write `<table>.npz` for every table (`scipy.sparse.load_npz`), and the other weights as network.safetensors."""
    try:
        from scipy.sparse import save_npz
    except ImportError as error:
        raise MissingExtraError("CSR files need scipy: pip install scipy") from error
    bundle, folder = bundle if isinstance(bundle, Bundle) else open_bundle(bundle), Path(folder)
    with atomic_folder(folder) as beside:
        write_json(beside / CSR, {"tables": sorted(bundle.tables)})
        for name, table in bundle.tables.items():
            if not isinstance(table, CompactTable):
                raise FormatError(
                    f"{bundle.folder}: table {name!r} is of a method with parts of its own, not a plain table"
                )
            save_npz(beside / f"{name}.npz", to_csr(table))
        shutil.copy(bundle.folder / NETWORK, beside)
    return folder
