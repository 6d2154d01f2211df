"""Reproduce the paper's tables and figures and write the page about them.

    python benchmarks/paper/make.py [--quick] [--only frontier,runtime] [--draw-only] [--seeds 0,1,2] [--models fm]

Parts run in order and skip finished results. Figures and page are made from the result files only.
"""

import argparse
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paper.settings import PaperSettings

PARTS = (
    "headline",
    "frontier",
    "frontier_small",
    "criteo_small",
    "pep0_and_lr",
    "runtime",
    "data_statistics",
    "methods_table",
    "lottery_ticket",
    "granularity",
    "thresholds",
    "distillation",
    "interactions",
    "frequency",
    "ablation",
)
"""Modules with the interface `paper.markdown.Part`, in the order of the page."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small version of everything, in minutes")
    parser.add_argument("--only", help=f"comma-separated, of {', '.join(PARTS)}")
    parser.add_argument(
        "--draw-only",
        action="store_true",
        help="draw figures and write the page from existing results, without training",
    )
    parser.add_argument("--seeds", help="comma-separated")
    parser.add_argument("--models", help="comma-separated; run only these models")
    arguments = parser.parse_args()
    chosen = PARTS if arguments.only is None else tuple(arguments.only.split(","))
    if unknown := sorted(set(chosen) - set(PARTS)):
        parser.error(f"unknown part {', '.join(unknown)}. Parts: {', '.join(PARTS)}.")
    sys.path[0] = str(Path(__file__).parent.parent)  # contains the modules `paper.…`, `environment` and `run`
    from paper.page import write_page
    from paper.settings import MODELS, PaperSettings

    models = MODELS if arguments.models is None else tuple(arguments.models.split(","))
    if unknown := sorted(set(models) - set(MODELS)):
        parser.error(f"unknown model {', '.join(unknown)}. Models: {', '.join(MODELS)}.")
    seeds = None if arguments.seeds is None else [int(seed) for seed in arguments.seeds.split(",")]
    settings = PaperSettings.of(quick=arguments.quick, seeds=seeds, models=models)
    failed = [name for name in chosen if not make_part(name, settings, run=not arguments.draw_only)]
    print(write_page(settings, {name: part(name) for name in PARTS}))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}. Run the same command again to resume.")


def make_part(name: str, settings: "PaperSettings", *, run: bool) -> bool:
    """Run and draw one part. If it fails, print the error and return False, so that other parts can continue."""
    try:
        print(f"== {name}", flush=True)
        if run:
            part(name).run(settings)
        for path in part(name).draw(settings):
            print(path)
    except Exception:
        traceback.print_exc()
        return False
    return True


def part(name: str) -> ModuleType:
    return import_module(f"paper.parts.{name}")


if __name__ == "__main__":
    main()
