"""Kills of a server that reloads a bundle and of the process that replaces the bundle meanwhile."""

import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from crash.tasks import run_child, start_child

# isort: split
from fuzz.mutations import make_corpus
from thresher.server.bundles import BundleStore
from thresher.server.config import ServerConfig
from thresher.serving.change_bundle import convert_bundle, copy_bundle
from thresher.serving.numpy_predictor import NumpyPredictor

ROW = {"user": "1", "item": "2"}
SECONDS = 1.5


def kill_servers(folder: Path, number: int, chance: random.Random) -> tuple[Counter[str], int]:
    """Half of the kills hit the server, half the writer. Each prediction must be that of one of the two bundles.

    Returns the outcomes of the kills, and how many predictions were compared.
    """
    counts: Counter[str] = Counter()
    predictions = 0
    log, temporary = folder / "serve.log", folder / "temporary"
    temporary.mkdir()
    tempfile.tempdir = str(temporary)
    _check(run_child(lambda: _make_bundles(folder), log), log)
    _check(run_child(lambda: _write_answers(folder, [folder / "one", folder / "two"]), log), log)
    known = set((folder / "answers").read_text().split())
    assert len(known) == 2, "the two bundles predict differently"
    for _ in range(number // 2):
        (folder / "answers").unlink(missing_ok=True)
        writer = start_child(lambda: _replace(folder), log)
        server = start_child(lambda: _serve(folder), log)
        end = time.monotonic() + 60
        while not (folder / "answers").exists() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, SECONDS))
        for child in (writer, server) if chance.random() < 0.5 else (server, writer):
            os.kill(child, signal.SIGKILL)
            killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
            counts["equal" if killed else "violation"] += 1
            time.sleep(chance.uniform(0, SECONDS / 3))
        assert (folder / "answers").exists(), log.read_text()[-2000:]
        lines = (folder / "answers").read_text().splitlines()
        counts["violation"] += len(set(lines[:-1]) - known)  # the last line may be cut
        predictions += len(lines)
        again: Callable[[], None] = lambda: _write_answers(folder, [folder / "served"])  # noqa: E731
        _check(run_child(again, log), log)
        counts["violation"] += not set((folder / "answers").read_text().split()) <= known
        counts["violation"] += len(list(temporary.iterdir()))
    tempfile.tempdir = None
    return +counts, predictions


def _check(status: int, log: Path) -> None:
    assert status == 0, log.read_text()[-2000:]


def _make_bundles(folder: Path) -> None:
    (folder / "corpus").mkdir()
    make_corpus(folder / "corpus")
    copy_bundle(folder / "corpus" / "bundle", folder / "one")
    convert_bundle(folder / "one", folder / "two", "int4")
    copy_bundle(folder / "one", folder / "served")


def _write_answers(folder: Path, bundles: list[Path]) -> None:
    """The predictions of bundles, and of a server that starts and so removes what a killed one left."""
    answers = [NumpyPredictor.load(bundle).predict(ROW) for bundle in bundles]
    if bundles == [folder / "served"]:
        copy_bundle(folder / "one", folder / "served")
        BundleStore(_config(folder)).load_all()
        assert sorted(path.name for path in folder.glob("*served*")) == ["served"]
    (folder / "answers").write_text("\n".join(map(repr, map(float, answers))))


def _config(folder: Path) -> ServerConfig:
    return ServerConfig(bundles={"m": str(folder / "served")}, reload_seconds=0.01, access_log=False)


def _replace(folder: Path) -> None:
    for source in cycle(("two", "one")):
        copy_bundle(folder / source, folder / "served")


def _serve(folder: Path) -> None:
    store = BundleStore(_config(folder))
    store.load_all()
    with (folder / "answers").open("a") as answers:
        while True:
            store.reload_changed()
            bundle = store.find("m")
            assert bundle is not None
            answers.write(f"{float(bundle.predict_rows(bundle.encode([ROW]))[0])!r}\n")
            answers.flush()
