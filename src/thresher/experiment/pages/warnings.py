"""What to know before choosing a size: doubts about the results of a run or a comparison, as sentences."""

from collections.abc import Sequence

from thresher.report.frontier import Frontier
from thresher.report.remarks import data_doubts

MAX_MISCALIBRATION = 0.1
RARE_DROP = 0.005


def run_warnings(frontier: Frontier) -> list[str]:
    """Warnings about a run, the most serious first."""
    metadata, dense = frontier.metadata, frontier.dense
    found = []
    if doubts := metadata.get("doubts"):
        found.append(str(doubts).removeprefix("Warning: "))
    if metadata.get("recommended", "") is None:
        found.append("No size is within the AUC drop that was allowed.")
    if improving := metadata.get("still_improving"):
        found.append(
            f"Training ended at its last epoch while validation was still improving: {', '.join(improving)}. "
            "More epochs (training.max_epochs) may raise its AUC and change the comparison."
        )
    found += [*data_doubts(frontier), *_floor_warnings(frontier)]
    for point in frontier.points:
        calibration = point.validation_calibration
        if calibration is not None and abs(calibration - 1) > MAX_MISCALIBRATION:
            found.append(
                f"{point.budget}: the mean prediction is {calibration:.2f} times the mean label on validation. "
                "Calibrate the probabilities before they are used as such, for example in bids."
            )
        if dense is not None and point.validation_rare_auc is not None and dense.validation_rare_auc is not None:
            drop = dense.validation_rare_auc - point.validation_rare_auc
            own = dense.validation_auc - point.validation_auc
            if drop > RARE_DROP and drop > 2 * own:
                overall = f"lose {own:.4f}" if own >= 0 else f"gain {-own:.4f}"
                found.append(f"{point.budget}: rows with rare features lose {drop:.4f} AUC, all rows {overall}.")
    distilled = (metadata.get("distillation") or {}).get("share")
    if dense is not None and distilled and any(p.validation_auc > dense.validation_auc for p in frontier.points):
        found.append(
            "Some pruned models are above the dense model. They are trained on its soft labels, the dense model on "
            "hard labels: the gain comes from distillation and not from pruning."
        )
    found.append(_seed_warning(metadata.get("seeds", [])))
    return found


def _seed_warning(seeds: Sequence[int]) -> str:
    if len(seeds) < 2:
        return "All figures on this page come from one seed. Differences in AUC below 0.001 may be noise."
    return (
        f"Results are means of {len(seeds)} seeds. Fields and bundles are those of seed {seeds[0]}, whose AUC "
        "may differ from the mean."
    )


def _floor_warnings(frontier: Frontier) -> list[str]:
    """Sizes that are not clearly better than a model without an embedding."""
    found = []
    for point in frontier.points:
        gain, error = point.floor_gain, point.floor_gain_error
        if gain is not None and gain < 2 * (error or 0.0):
            side = "above" if gain >= 0 else "below"
            found.append(
                f"{point.budget}: validation AUC is {abs(gain):.4f} {side} that of a model "
                f"without an embedding (standard error {error or 0.0:.4f}). The embedding adds nothing that can be "
                "measured at this size."
            )
    return found
