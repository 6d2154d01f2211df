"""A comparison as text: AUC and bytes by method and budget, and what a reader must know beside them."""

from collections.abc import Sequence
from statistics import fmean

from thresher.experiment.comparison.compare_config import RIVAL
from thresher.experiment.comparison.compared_points import ComparedPoint, compared_models
from thresher.models.model_registry import FLOOR
from thresher.report.frontier import mean_points
from thresher.report.remarks import embedding_gain, rival_wins
from thresher.report.tables import UNDER_TRAINED, bytes_table, comparison_table


def comparison_text(points: Sequence[ComparedPoint], budgets: Sequence[str]) -> str:
    """Test AUC and bytes by method and budget, one block per model."""
    return "\n\n".join(model_texts(points, budgets).values())


def model_texts(points: Sequence[ComparedPoint], budgets: Sequence[str]) -> dict[str, str]:
    """Model → its tables and remarks."""
    aucs = [point.test_auc for point in points if point.model == FLOOR]
    floor = f"; logistic regression without embedding: {fmean(aucs):.4f}" if aucs else ""
    blocks = {}
    for model in compared_models(points):
        compared = [point for point in points if point.model == model]
        of_model = [point.frontier_point() for point in compared]
        rivalled = dict.fromkeys(point.equal_bytes_of for point in compared if point.equal_bytes_of is not None)
        title = f"{model}: test AUC by budget, the best with a star{floor}"
        sizes = f"Bytes of everything that a prediction loads:\n{bytes_table(of_model, budgets)}"
        sentences = [
            *(rival_wins(of_model, method, RIVAL) for method in rivalled),
            embedding_gain(mean_points(of_model)),
        ]
        notes = [sentence for sentence in sentences if sentence]
        if any(point.still_improving for point in of_model):
            notes.append(f"{UNDER_TRAINED} not converged when training ended (training.max_epochs).")
        blocks[model] = "\n".join([title, comparison_table(of_model, budgets), sizes, *notes])
    return blocks
