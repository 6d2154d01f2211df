"""What learning the deviation is worth: the same search with it fixed at 0; only the clock then moves a threshold."""

from pathlib import Path

from paper.experiments import pruned_points, read_experiment, result_path, run_experiment
from paper.page import command, made_from, not_run_yet, table
from paper.settings import PaperSettings
from paper.stored import read_result
from paper.verdicts import SideBySide

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
    both = SideBySide.of(learned, fixed)
    return "\n\n".join(
        [
            f"""Then nothing but the clock moves a threshold: magnitude pruning with a soft threshold. Test AUC on
MovieLens-1M, FM, D = 64, retrained on labels alone (`benchmarks/experiments/{LEARNED}.toml` and
`…/{Path(FIXED).name}.toml`). Made by {command(PART)}. The paper has no such ablation.""",
            table(["parameters", "deviation learned", "fixed at 0", "difference, paired"], both.rows),
            both.in_words("Learning it"),
            made_from(*(read_result(result_path(settings, name)) for name in (LEARNED, FIXED))),
        ]
    )
