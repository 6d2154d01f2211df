"""Prune a model of a CSV file: `python 01_your_csv.py clicks.csv label`.

Without arguments a small file is generated.
"""

import random
import sys
import tempfile
from pathlib import Path

from thresher import DataConfig, OptimizerConfig, PepConfig, RunConfig, SearchConfig, TrainingConfig, load_bundle, prune


def generate_csv(path):
    """Clicks depend on user and advert; the browser is noise."""
    draw = random.Random(0)
    with path.open("w") as file:
        print("user,advert,browser,click", file=file)
        for _ in range(6000):
            user, advert, browser = draw.randrange(60), draw.randrange(40), draw.randrange(50)
            print(f"u{user},a{advert},b{browser},{int(user % 3 == advert % 3)}", file=file)


def main():
    folder = Path(tempfile.mkdtemp())
    path, label = (Path(sys.argv[1]), sys.argv[2]) if len(sys.argv) == 3 else (folder / "clicks.csv", "click")
    if len(sys.argv) != 3:
        generate_csv(path)
    fast = OptimizerConfig(learning_rate=0.005)
    config = RunConfig(
        data=DataConfig(paths=(str(path),), label=label),
        embedding=PepConfig(embedding_dim=16),
        training=TrainingConfig(batch_size=128, optimizer=fast),  # small and fast for a small file
        search=SearchConfig(plan_epochs=8, optimizer=fast),
        budgets=("20%", "5%"),
    )
    result = prune(config, out=folder / "run")
    for point in (result.frontier.dense, *result.frontier.points):
        size = f"{point.num_parameters:>6,} parameters {point.storage_bytes:>7,} bytes"
        print(f"{point.budget or 'dense':>6} {size}  test AUC {point.test_auc:.4f}")

    predictor = load_bundle(folder / "run" / "bundles" / "5pct")
    if len(sys.argv) != 3:
        row = {"user": "u3", "advert": "a7", "browser": "b1"}
        print(f"probability of a click of {row}: {predictor.predict(row):.3f}")


if __name__ == "__main__":
    main()
