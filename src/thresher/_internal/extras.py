"""The name under which Thresher is installed, and the error for a package that only an extra installs."""

from thresher.errors import MissingExtraError

DISTRIBUTION = "thresher-embeddings"
"""On PyPI the name `thresher` belongs to another project. The package to import is `thresher` all the same."""


def missing_extra(what: str, package: str | None, extra: str) -> MissingExtraError:
    """The error for `what` if a package of an extra is not installed."""
    return MissingExtraError(
        f"{what} needs {package or extra}. Install the extra {extra!r}: pip install '.[{extra}]' in a clone of the "
        f"repository, or pip install '{DISTRIBUTION}[{extra}]'."
    )
