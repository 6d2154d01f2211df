"""How far a validation AUC can be trusted when a run is asked what may be lost of it."""

from thresher.training.metrics import auc_standard_error


def drop_doubts(drop: float, dense_auc: float, num_positive: int, num_negative: int) -> str | None:
    """What speaks against a recommendation by `drop`, in one line; None if nothing does."""
    error = auc_standard_error(dense_auc, num_positive, num_negative)
    if dense_auc < 0.5 + 2 * error:
        return (
            f"Careful: the dense model's validation AUC {dense_auc:.4f} is not clearly above 0.5 (standard error "
            f"{error:.4f}): there is nothing to lose yet, so any size seems good enough."
        )
    if drop < error:
        return (
            f"Careful: a drop of {drop} is below the standard error {error:.4f} of the validation AUC "
            f"({num_positive:,} positive and {num_negative:,} negative rows): chance has a say in which size is within."
        )
    return None
