"""Golden runs: small runs of the whole library whose results must stay the same, bit for bit, while code is moved.

    python tests/golden/runs.py --check [NAME ...]     # compare with expected.json; exit code 1 if anything differs
    python tests/golden/runs.py --write                # run everything and rewrite expected.json

Each run returns plain data: sizes and metrics as exact numbers, and sha256 digests of masks, weights and predictions.
Times, folder names, file names and the names of parameters and settings are not recorded, so they may change. When a
name of the library changes, follow it in the imports and settings of this file and leave expected.json as it is.

Exact results depend on the processor and on the versions of torch, numpy and numba; `environment()` records both.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numba
import numpy as np
import torch
from golden_records import (
    Record,
    differences,
    digest,
    digest_all,
    environment,
    environment_differences,
    in_order,
    point_record,
    ticket_record,
    trained_record,
)
from matplotlib.figure import Figure
from torch import Tensor, nn

# All names of the library that this file uses. A renamed module is followed here.
import thresher
import thresher.training.progress as progress_module
from thresher.attach.attach import attach_
from thresher.data.batches.batches import TensorBatches
from thresher.data.batches.split_batches import SplitBatches
from thresher.data.config import DataConfig, SyntheticConfig
from thresher.data.encode.sources import build_source
from thresher.embeddings.method_registry import registered_embeddings
from thresher.embeddings.pep import PepConfig
from thresher.experiment.compare import compare
from thresher.experiment.comparison.compare_config import CompareConfig
from thresher.experiment.config import RunConfig
from thresher.experiment.effort import Effort
from thresher.experiment.prune import prune
from thresher.experiment.prune_model import prune_model
from thresher.models.autoint import AutoIntConfig
from thresher.models.fm import DeepFmConfig, FmConfig
from thresher.search.schedule import SearchConfig
from thresher.search.searcher import Searcher
from thresher.search.ticket_files import load_ticket
from thresher.serving.predictor import load_bundle
from thresher.training.fit import TrainingConfig
from thresher.training.optimizers import OptimizerConfig

EXPECTED = Path(__file__).parent / "expected.json"
FAST = OptimizerConfig(learning_rate=1e-2)
SMALL_DATA = DataConfig(
    source="synthetic",
    synthetic=SyntheticConfig(num_rows=3_000, num_signal_fields=2, num_noise_fields=2, field_size=60, seed=2),
)
SHORT_SEARCH = SearchConfig(warmup_epochs=1, plan_epochs=2, max_epochs=2, clock_steps=2, optimizer=FAST)
SHORT_TRAINING = TrainingConfig(max_epochs=2, batch_size=256, patience=1, optimizer=FAST)

# The length of the warm-up and the way to use the dense model's predictions are left to the validation split.
FM_PEP = RunConfig(
    effort="paper",
    data=DataConfig(
        source="synthetic",
        synthetic=SyntheticConfig(num_rows=6_000, num_signal_fields=3, num_noise_fields=2, field_size=40, seed=2),
    ),
    embedding=PepConfig(embedding_dim=8),
    search=SearchConfig(max_warmup_epochs=4, plan_epochs=4, clock_steps=5, optimizer=FAST),
    training=TrainingConfig(max_epochs=5, batch_size=256, patience=2, optimizer=FAST),
    budgets=("300", "5%", "1KB"),
)
FM_BY_DEFAULT = replace(FM_PEP, effort="standard", search=SearchConfig(clock_steps=5, optimizer=FAST))
DEEPFM_DISTILLED = replace(
    FM_PEP,
    model=DeepFmConfig(hidden_sizes=(16, 8)),
    search=replace(FM_PEP.search, optimizer=replace(FAST, updates="rows")),
    budgets=("10%", "200"),
    teacher_share=1.0,
    distill_search=True,
)
AUTOINT_SEVERAL_TEACHERS = RunConfig(
    effort="paper",
    data=SMALL_DATA,
    model=AutoIntConfig(hidden_sizes=(8,), linear_term=True),
    embedding=PepConfig(embedding_dim=8, first_order=True),
    search=SHORT_SEARCH,
    training=SHORT_TRAINING,
    budgets=("200",),
    rewind="final",
    teacher_share=0.5,
    num_teachers=2,
    teacher_models=(FmConfig(),),
    seed=3,
)
EVERY_METHOD = RunConfig(
    effort="paper",
    data=SMALL_DATA,
    model=DeepFmConfig(hidden_sizes=(8,)),
    search=SHORT_SEARCH,
    training=SHORT_TRAINING,
    budgets=("60%", "3KB"),
    teacher_share=0.0,
)
METHOD_SETTINGS = {"mgqe": {"num_centroids": 16, "num_rare_centroids": 4}}  # its defaults do not fit so small a table
COMPARISON = CompareConfig(
    data=SMALL_DATA,
    methods=("pep", "magnitude", "mde", "quantized"),
    budgets=("40%", "400"),
    embedding_dim=16,
    seeds=2,
    trials=2,
    rival=False,
    search=SHORT_SEARCH,
    training=SHORT_TRAINING,
)
DISTILLED_COMPARISON = replace(COMPARISON, methods=("pep", "hash"), seeds=1, trials=1, teacher_share=0.5)

# A stage is recognised by a word in its name: (word, epoch, step) at which a run is killed.
KILLS = (("search", 3, 5), ("retrain", 2, 3))


def ticket_records(folder: Path) -> list[Record]:
    """Every ticket under a folder, in an order that does not depend on the names of folders."""
    return in_order(ticket_record(load_ticket(path.parent)) for path in folder.rglob("ticket.json"))


def bundle_records(folder: Path, data: DataConfig) -> list[Record]:
    """Sizes and predictions of every bundle under a folder."""
    frame = build_source(data).frame().head(64)
    unseen = dict.fromkeys(frame.columns, "never seen")
    records = []
    for path in folder.rglob("bundle.json"):
        predictor = load_bundle(path.parent)
        probabilities = np.append(predictor.predict(frame), np.float32(predictor.predict(unseen)))
        records.append(
            {
                "num_parameters": predictor.bundle.num_parameters,
                "storage_bytes": predictor.bundle.storage_bytes,
                "predictions": digest(torch.from_numpy(probabilities)),
            }
        )
    return in_order(records)


def pruned(config: RunConfig, folder: Path, *, resume: bool = False) -> Record:
    """Run `prune` and record its results, its tickets and its bundles."""
    result = prune(config, out=folder, resume=resume)
    return {
        "dense": point_record(result.frontier.dense),
        "points": {point.budget: point_record(point) for point in result.frontier.points},
        "tickets": ticket_records(folder),
        "bundles": bundle_records(folder, config.data),
    }


def killed_and_resumed(folder: Path) -> Record:
    """Run `FM_PEP` in processes that kill themselves, first in the search, then in retraining; resume it here."""
    paths = [str(Path(thresher.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    for word, epoch, step in KILLS:
        arguments = [sys.executable, __file__, "--until-killed", str(folder), word, str(epoch), str(step)]
        done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != -signal.SIGKILL:
            raise RuntimeError(
                f"the run was not killed: it showed no epoch {epoch}, step {step} of a stage whose name contains "
                f"{word!r} (exit code {done.returncode}); follow the stage's name in KILLS\n{done.stderr}"
            )
    return pruned(FM_PEP, folder, resume=True)


class Killer:
    """A progress display that kills its own process at a given step of a given stage."""

    def __init__(self, word: str, epoch: int, step: int) -> None:
        self.word, self.at = word, (epoch, step)

    def update(self, state: Any) -> None:
        if self.word in state.stage and (state.epoch, state.step) >= self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def columns(self, source: Any) -> None:
        pass

    def encoding(self, done: int, total: int | None, message: str) -> None:
        pass


def run_until_killed(folder: Path, word: str, epoch: int, step: int) -> None:
    """Run, or resume, `FM_PEP` with a display that is told of every step."""
    assert progress_module.SECONDS_BETWEEN_REPORTS > 0
    progress_module.SECONDS_BETWEEN_REPORTS = 0.0
    prune(FM_PEP, out=folder, resume=True, progress=Killer(word, epoch, step))


def every_method(folder: Path) -> Record:
    """Run `prune` with each method that the library ships."""
    records = {}
    for method, registered in sorted(registered_embeddings().items()):
        if not registered.embedding.__module__.startswith("thresher."):
            continue  # registered by another test
        embedding = replace(registered.config(), embedding_dim=8, **METHOD_SETTINGS.get(method, {}))
        records[method] = pruned(replace(EVERY_METHOD, embedding=embedding), folder / method)
    return records


def compared(config: CompareConfig, folder: Path) -> Record:
    """Run `compare` and record its points and its tickets."""
    result = compare(config, out=folder)
    points = {
        f"{point.model} {point.method} {point.budget} {point.num_parameters} seed {point.seed}": point_record(point)
        for point in result.points
    }
    unmet = sorted(" ".join(place) for place in result.unmet)
    return {"points": points, "unmet": unmet, "tickets": ticket_records(folder)}


class TwoTables(nn.Module):
    """A plain module with two embedding tables, one of them shared by two modules, and a dense input."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.users = nn.Embedding(40, 8, _weight=0.1 * torch.randn(40, 8, generator=draw))
        self.items = nn.Embedding(60, 8, _weight=0.1 * torch.randn(60, 8, generator=draw))
        self.twins = nn.Embedding(60, 8, _weight=self.items.weight)
        self.twins.weight = self.items.weight
        self.out = nn.Linear(2, 1)
        with torch.no_grad():
            self.out.weight.fill_(0.5)
            self.out.bias.zero_()

    def forward(self, users: Tensor, items: Tensor, price: Tensor) -> Tensor:
        product = self.users(users) * (self.items(items) + self.twins(items))
        return self.out(torch.stack([product.sum(1), price], dim=1))


def tensor_batches(seed: int, *, shuffle: int | None = None) -> TensorBatches:
    draw = torch.Generator().manual_seed(seed)
    users, items = (torch.randint(size, (1_024,), generator=draw) for size in (40, 60))
    price, chance = torch.rand(1_024, generator=draw), torch.rand(1_024, generator=draw)
    labels = chance < torch.where(users % 2 == items % 2, 0.8, 0.3)
    return TensorBatches((users, items, price), labels, 64, seed=shuffle)


def foreign_model(folder: Path, effort: Effort) -> Record:
    """Run `prune_model` on a plain module; the validation split decides how the dense model's predictions are used."""
    data = SplitBatches(train=tensor_batches(1, shuffle=0), validation=tensor_batches(2), test=tensor_batches(3))
    result = prune_model(
        TwoTables(0),
        data,
        ["50%", "40", "1KB"],
        search=SearchConfig(warmup_epochs=2, plan_epochs=4, clock_steps=4, optimizer=FAST),
        training=TrainingConfig(max_epochs=8, optimizer=FAST),
        folder=folder,
        effort=effort,
    )
    return {
        "dense": trained_record(result.dense),
        "pruned": {budget: trained_record(trained) for budget, trained in result.pruned.items()},
        "shares": [result.distillation.search, result.distillation.retraining],
        "tickets": ticket_records(folder),
    }


def own_loop(folder: Path) -> Record:
    """Drive a `Searcher` from a plain training loop, then apply its tickets."""
    model, source = TwoTables(1), tensor_batches(4, shuffle=1)
    attach_(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    searcher = Searcher(model, ["50%", "100", "30"], steps=80, warmup_steps=20, every=4)
    for epoch in range(1, 6):
        for batch in source.epoch(epoch):
            optimizer.zero_grad()
            logits = model(*batch.inputs).squeeze(1)
            nn.functional.binary_cross_entropy_with_logits(logits, batch.labels).backward()
            optimizer.step()
            searcher.step()
    records = []
    for ticket in searcher.tickets:
        ticket.apply_(fresh := TwoTables(1))
        with torch.no_grad():
            records.append(ticket_record(ticket) | {"logits": digest(fresh(*tensor_batches(5).inputs))})
    return {"finished": searcher.finished, "model": digest_all(model.state_dict()), "tickets": records}


RUNS: Mapping[str, Callable[[Path], Record]] = {
    "prune fm with pep": lambda folder: pruned(FM_PEP, folder),
    "prune fm with pep, killed and resumed": killed_and_resumed,
    "prune fm with pep, effort standard": lambda folder: pruned(FM_BY_DEFAULT, folder),
    "prune deepfm with pep, distilled": lambda folder: pruned(DEEPFM_DISTILLED, folder),
    "prune autoint with pep, several teachers": lambda folder: pruned(AUTOINT_SEVERAL_TEACHERS, folder),
    "prune with every method": every_method,
    "compare": lambda folder: compared(COMPARISON, folder),
    "compare, distilled": lambda folder: compared(DISTILLED_COMPARISON, folder),
    "prune_model": lambda folder: foreign_model(folder, "paper"),
    "prune_model, effort standard": lambda folder: foreign_model(folder, "standard"),
    "searcher in a plain loop": own_loop,
}
SAME = ("prune fm with pep", "prune fm with pep, killed and resumed")
"""Two runs whose records must be equal to each other."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread of torch and of numba inside; afterwards as many as before."""
    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


@contextmanager
def without_pictures() -> Iterator[None]:
    """Write empty files in place of pictures: they are not recorded, and drawing takes longer than small trainings."""

    def save_nothing(figure: Figure, path: str | Path, **settings: Any) -> None:
        Path(path).write_bytes(b"")

    with patch.object(Figure, "savefig", save_nothing):
        yield


def record(name: str, folder: Path) -> Record:
    """Run one of `RUNS` in an empty folder; the result is as JSON would give it back."""
    with one_thread(), without_pictures():
        found: Record = json.loads(json.dumps(RUNS[name](folder)))
    return found


def load_expected() -> Record:
    found: Record = json.loads(EXPECTED.read_text(encoding="utf-8"))
    return found


def run_all(names: Iterable[str]) -> Record:
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            start = perf_counter()
            found[name] = record(name, Path(folder) / "run")
            tell(f"{perf_counter() - start:5.1f} s  {name}")
    return found


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def check(names: Iterable[str]) -> int:
    expected, found = load_expected(), run_all(names)
    for line in environment_differences(expected):
        tell(f"note: another environment, in which results may differ: {line}")
    lines = [line for name in found for line in differences(expected["runs"].get(name), found[name], name)]
    for line in lines:
        tell(line)
    tell(f"{len(lines)} differences from {EXPECTED.name}" if lines else f"no difference from {EXPECTED.name}")
    return 1 if lines else 0


def write() -> int:
    found = run_all(RUNS)
    if lines := differences(found[SAME[0]], found[SAME[1]]):
        tell("\n".join(["the resumed run differs from the uninterrupted one; nothing was written", *lines]))
        return 1
    content = {"environment": environment(), "runs": found}
    EXPECTED.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    tell(f"wrote {EXPECTED}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="runs to check; all of them if none is named")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="compare with expected.json")
    what.add_argument("--write", action="store_true", help="rewrite expected.json")
    what.add_argument("--until-killed", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := sorted({*arguments.names} - {*RUNS}):
        parser.error(f"there is no run {unknown[0]!r}; the runs are: {'; '.join(RUNS)}")
    if arguments.until_killed:
        folder, word, epoch, step = arguments.until_killed
        with one_thread():
            run_until_killed(Path(folder), word, int(epoch), int(step))
        return 0
    return write() if arguments.write else check(arguments.names or RUNS)


if __name__ == "__main__":
    sys.exit(main())
