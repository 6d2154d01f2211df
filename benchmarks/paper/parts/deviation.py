"""What learning the deviation is worth: the same search with it fixed at 0; only the clock then moves a threshold."""

from collections.abc import Mapping
from pathlib import Path

from paper.experiments import aucs_of, pruned_points, read_experiment, result_path, run_experiment
from paper.page import command, made_from, mean_sd, not_run_yet, table
from paper.settings import PaperSettings
from paper.stored import read_result
from paper.verdicts import is_ahead, paired, signed

TITLE = "The deviation fixed at 0"
PART = "deviation"
LEARNED, FIXED = "movielens-1m/fm/pep-plan-by-labels", "movielens-1m/fm/pep-plan-fixed-deviation"


def run(settings: PaperSettings) -> None:
    for name in (LEARNED, FIXED):
        run_experiment(settings, name, settings.seeds)


def draw(settings: PaperSettings) -> list[Path]:
    return []  # a table alone


def page(settings: PaperSettings) -> str:
    learned, fixed = (pruned_points(read_experiment(settings, name).values(), name) for name in (LEARNED, FIXED))
    if not learned or not fixed:
        return not_run_yet(PART)
    rows, differences = [], {}
    for budget in dict.fromkeys(str(point.budget) for point in learned):
        sides = [[point for point in points if point.budget == budget] for points in (learned, fixed)]
        differences[budget] = paired(*sides)
        rows.append([budget, *(mean_sd(aucs_of(side)) for side in sides), signed(differences[budget])])
    return "\n\n".join(
        [
            f"""Then nothing but the clock moves a threshold: magnitude pruning with a soft threshold. Test AUC on
MovieLens-1M, FM, D = 64, retrained on labels alone (`benchmarks/experiments/{LEARNED}.toml` and
`…/{Path(FIXED).name}.toml`). Made by {command(PART)}. The paper has no such ablation.""",
            table(["parameters", "deviation learned", "fixed at 0", "difference, paired"], rows),
            _worth(differences),
            made_from(*(read_result(result_path(settings, name)) for name in (LEARNED, FIXED))),
        ]
    )


def _worth(differences: Mapping[str, list[float]]) -> str:
    """In words: at which sizes learning the deviation gains, at which it costs."""
    gains = [budget for budget, each in differences.items() if each and is_ahead(each)]
    costs = [budget for budget, each in differences.items() if each and is_ahead([-one for one in each])]
    told = f"Learning it gains at {', '.join(gains)}" if gains else "Learning it gains at no size"
    return told + (f" and costs at {', '.join(costs)}." if costs else "; it costs nothing, either.")
