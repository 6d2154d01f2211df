"""Bad rows that were left out: an error if most rows are bad, a warning if many are."""

from collections.abc import Sequence

from thresher._internal.text import format_share
from thresher.data.table import EncodedTable
from thresher.errors import DataError

LARGE_SHARE, MOST = 0.05, 0.5
Samples = Sequence[tuple[str, int | None, str]]  # (file, line, reason)


def check_skipped(num_rows: int, skipped: int, samples: Samples) -> None:
    """Raise if more than half of all rows are bad; `num_rows` are left."""
    total = num_rows + skipped
    if skipped > MOST * total:
        first = f" ({samples[0][2]})" if samples else ""
        file, line = samples[0][:2] if samples else (None, None)
        raise DataError(
            f"{skipped:,} of {total:,} rows are bad, too many to leave out. This is the first{first}. Check the "
            "transform of the column, the label, and the format of the file.",
            file=file or None,
            line=line,
        )


def warn_about_skipped(table: EncodedTable) -> str | None:
    """A warning if many rows were left out; None otherwise."""
    skipped = int(table.metadata.get("skipped", 0))
    total = table.num_rows + skipped
    if skipped <= LARGE_SHARE * total:
        return None
    samples = table.metadata.get("skipped_samples", ())
    first = f" The first: {samples[0][2]}." if samples else ""
    return (
        f"Warning: {skipped:,} of {total:,} rows ({format_share(skipped / total)}) are bad and were left out.{first} "
        "Results hold for the other rows only. Check the transform of the column, the label, and the format of the "
        "file."
    )
