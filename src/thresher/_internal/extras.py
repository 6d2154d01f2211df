"""The name under which Thresher is installed, and the error for a package that only an extra installs."""

from importlib import import_module
from typing import Any

from thresher.errors import MissingExtraError

DISTRIBUTION = "thresher-embeddings"
"""On PyPI the name `thresher` belongs to another project. The package to import is `thresher` all the same."""


def missing_extra(what: str, package: str | None, extra: str) -> MissingExtraError:
    """The error for `what` if a package of an extra is not installed."""
    return MissingExtraError(
        f"{what} needs {package or extra}. Install the extra {extra!r}: pip install '.[{extra}]' in a clone of the "
        f"repository, or pip install '{DISTRIBUTION}[{extra}]'."
    )


def import_fbgemm() -> tuple[Any, Any, Any]:
    """FBGEMM's modules for inference and common names, and `SparseType`."""
    try:
        import_module("fbgemm_gpu")
        inference, common, configs = (
            import_module(f"fbgemm_gpu.{name}")
            for name in (
                "split_table_batched_embeddings_ops_inference",
                "split_table_batched_embeddings_ops_common",
                "split_embedding_configs",
            )
        )
    except ImportError as error:
        raise MissingExtraError(
            f"FBGEMM tables need {error.name or 'fbgemm_gpu'}, which no extra installs. Install the build for your "
            "torch: pip install --no-deps fbgemm-gpu-cpu==1.8.0 for torch 2.13."
        ) from error
    return inference, common, configs.SparseType
