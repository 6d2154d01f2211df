"""One method at one size: its points over seeds and their statistics."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from paper.experiments import aucs_of
from paper.markdown import mean_sd
from thresher.report.frontier import FrontierPoint
from thresher.search.budget import Budget

MIN_FILL = 0.95
"""A method that uses a smaller share of its budget is reported with its own size."""


@dataclass(frozen=True)
class MethodAtSize:
    """Points of one method and one budget, or of one size if it has no budget: one point per seed."""

    points: tuple[FrontierPoint, ...]

    @property
    def label(self) -> str:
        return self.points[0].label

    @property
    def budget(self) -> str | None:
        return self.points[0].budget

    @property
    def smallest(self) -> int:
        """The smallest number of parameters over seeds; searches that choose sizes can end at different ones."""
        return min(point.num_parameters for point in self.points)

    @property
    def largest(self) -> int:
        return max(point.num_parameters for point in self.points)

    @property
    def storage_bytes(self) -> float:
        return fmean(point.storage_bytes for point in self.points)

    @property
    def validation_auc(self) -> float:
        return fmean(point.validation_auc for point in self.points)

    @property
    def test_auc(self) -> float:
        return fmean(aucs_of(self.points))

    @property
    def fills_its_budget(self) -> bool:
        return self.budget is not None and self.smallest >= MIN_FILL * Budget.parse(self.budget).max_entries(10**9)

    def size_text(self) -> str:
        """Format the number of parameters, as a range if seeds differ.

        >>> point = dict(label="mde", storage_bytes=9, validation_auc=0.8, validation_logloss=0.4)
        >>> MethodAtSize(tuple(FrontierPoint(num_parameters=size, **point) for size in (1200, 1000))).size_text()
        '1,000 to 1,200'
        """
        return f"{self.smallest:,}" + (f" to {self.largest:,}" if self.largest > self.smallest else "")

    def auc_text(self) -> str:
        """Format test AUC, followed by the size if it is well below the budget."""
        return mean_sd(aucs_of(self.points)) + ("" if self.fills_its_budget else f" @ {self.size_text()}")


def group_by_size(points: Iterable[FrontierPoint]) -> list[MethodAtSize]:
    """Group points by method and size, the largest first."""
    groups: dict[tuple[str, str | None, int | None], list[FrontierPoint]] = {}
    for point in points:
        size = point.num_parameters if point.budget is None else None
        groups.setdefault((point.label, point.budget, size), []).append(point)
    return sorted(
        (MethodAtSize(tuple(group)) for group in groups.values()), key=lambda group: group.storage_bytes, reverse=True
    )
