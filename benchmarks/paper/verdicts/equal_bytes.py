"""One method beside the others at equal bytes, in a table and words."""

from collections.abc import Sequence

from paper.markdown import ABSENT, table
from paper.verdicts.differences import learns_on_validation, paired_differences, signed
from paper.verdicts.equal_budgets import Comparison, outcome_counts
from paper.verdicts.groups import MethodAtSize, group_by_size
from thresher.report.frontier import FrontierPoint

HEADS = (
    "in bytes",
    "bytes",
    "test AUC",
    "best of the others on validation with no more bytes",
    "bytes",
    "test AUC (difference)",
)


def at_equal_bytes(points: Sequence[FrontierPoint], own: Sequence[str], *, turned: Sequence[str] = ()) -> str:
    """Each size of one method, in one or several ways of storing, beside the best of the others with no more bytes.

    The best is the best on validation, so methods that learned on those rows are not among them.

    Args:
        turned: others that no equal number of parameters compares with: each of their sizes, too, beside the best of
            the one method with no more bytes, so that not only its own sizes are asked for.
    """
    mine = group_by_size(point for point in points if point.label in own and point.budget is not None)
    others = group_by_size(
        point for point in points if point.label not in own and not learns_on_validation(point.label)
    )
    if not mine:
        return ""
    rows = []
    for one in mine:
        told = [f"{one.label} at {one.budget}", f"{one.storage_bytes:,.0f}", f"{one.test_auc:.4f}"]
        best = _best_within(one, others)
        if best is None:
            rows.append([*told, ABSENT, ABSENT, ABSENT])
        else:
            told += [f"{best.label}, {best.size_text()} parameters", f"{best.storage_bytes:,.0f}"]
            rows.append([*told, f"{best.test_auc:.4f} ({signed(paired_differences(one.points, best.points))})"])
    found = [
        Comparison(best, rival)
        for rival in others
        if rival.label in turned
        and (best := _best_within(rival, mine))
        and paired_differences(best.points, rival.points)
    ]
    names = " and ".join(f"`{label}`" for label in turned)
    words = f"Asked from the other side, for each size of {names}: the best of `{own[0]}` with no more bytes is"
    learned = dict.fromkeys(f"`{point.label}`" for point in points if learns_on_validation(point.label))
    aside = f"Not among the others: {', '.join(learned)}, which learned on the rows of validation." if learned else ""
    return "\n\n".join(filter(None, [table(HEADS, rows), aside, f"{words} {outcome_counts(found)}." if found else ""]))


def _best_within(group: MethodAtSize, among: Sequence[MethodAtSize]) -> MethodAtSize | None:
    """The best on validation of those with no more bytes than another."""
    fitting = [one for one in among if one.storage_bytes <= group.storage_bytes]
    return max(fitting, key=lambda one: one.validation_auc, default=None)
