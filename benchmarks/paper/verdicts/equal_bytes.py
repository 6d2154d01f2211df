"""One method compared with the others at equal bytes, as a table and text."""

from collections.abc import Sequence

from paper.markdown import ABSENT, paragraphs, table
from paper.verdicts.differences import learns_on_validation, paired_differences, signed
from paper.verdicts.equal_budgets import Comparison, outcome_counts
from paper.verdicts.groups import MethodAtSize, group_by_size
from thresher.report.frontier import FrontierPoint

HEADS = (
    "equal bytes",
    "bytes",
    "test AUC",
    "best other method with at most as many bytes (by validation AUC)",
    "bytes",
    "test AUC (difference)",
)


def at_equal_bytes(points: Sequence[FrontierPoint], own: Sequence[str], *, reverse: Sequence[str] = ()) -> str:
    """Compare each size of one method with the best other method that needs at most as many bytes.

    The best method is chosen on validation, so methods that train on the validation rows are excluded.

    Args:
        own: labels of the method, one for each way of storing it.
        reverse: other methods whose sizes are also compared with the best of `own`, because a comparison at equal
            parameters is not possible.
    """
    own_groups = group_by_size(point for point in points if point.label in own and point.budget is not None)
    others = group_by_size(
        point for point in points if point.label not in own and not learns_on_validation(point.label)
    )
    if not own_groups:
        return ""
    rows = []
    for group in own_groups:
        row = [f"{group.label} at {group.budget}", f"{group.storage_bytes:,.0f}", f"{group.test_auc:.4f}"]
        best = _best_within(group, others)
        if best is None:
            rows.append([*row, ABSENT, ABSENT, ABSENT])
        else:
            row += [f"{best.label}, {best.size_text()} parameters", f"{best.storage_bytes:,.0f}"]
            difference = signed(paired_differences(group.points, best.points))
            rows.append([*row, f"{best.test_auc:.4f} ({difference})"])
    reversed_comparisons = [
        Comparison(best, rival)
        for rival in others
        if rival.label in reverse
        and (best := _best_within(rival, own_groups))
        and paired_differences(best.points, rival.points)
    ]
    excluded = dict.fromkeys(f"`{point.label}`" for point in points if learns_on_validation(point.label))
    names = " and ".join(f"`{label}`" for label in reverse)
    return paragraphs(
        table(HEADS, rows),
        f"Excluded from the other methods: {', '.join(excluded)}, which train on the validation rows."
        if excluded
        else "",
        f"In reverse, for each size of {names}, the best table of `{own[0]}` with at most as many bytes is "
        f"{outcome_counts(reversed_comparisons)}."
        if reversed_comparisons
        else "",
    )


def _best_within(group: MethodAtSize, among: Sequence[MethodAtSize]) -> MethodAtSize | None:
    """Return the best group on validation that needs at most as many bytes as `group`."""
    fitting = [one for one in among if one.storage_bytes <= group.storage_bytes]
    return max(fitting, key=lambda one: one.validation_auc, default=None)
