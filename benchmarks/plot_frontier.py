"""Draw the frontier of one or more result files, mean and spread over seeds.

    python benchmarks/plot_frontier.py docs/images/movielens-1m-fm benchmarks/results/movielens-1m/fm/pep-plan.json

The dense model is the mean over seeds of the first file.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from statistics import mean

from thresher._internal.storage.files import read_json
from thresher.report.frontier import Frontier, FrontierPoint
from thresher.report.plots import plot_frontier


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stem", type=Path, help="output path without suffix")
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--title")
    arguments = parser.parse_args()
    points, dense = [], None
    for path in arguments.results:
        seeds = [Frontier.from_json(seed) for seed in read_json(path)["seeds"].values()]
        label = path.stem
        points += [replace(point, label=label) for seed in seeds for point in seed.points]
        dense = dense or mean_point([seed.dense for seed in seeds])
    for written in plot_frontier(Frontier(points=tuple(points), dense=dense), arguments.stem, title=arguments.title):
        print(written)


def mean_point(points: list[FrontierPoint]) -> FrontierPoint:
    return replace(
        points[0],
        test_auc=mean(point.test_auc for point in points),
        validation_auc=mean(point.validation_auc for point in points),
    )


if __name__ == "__main__":
    main()
