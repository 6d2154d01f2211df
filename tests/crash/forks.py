"""`python -m crash.forks 100`: children forked from a process that has used a predictor, as under gunicorn.

Before the fork, the parent has predicted with polars, with torch and numba on several threads, and as a server. Each
child must answer as the parent did where it needs no polars, and refuse data frames and files, which polars would never
finish. Exit code 1 if one of them does not. The parent is idle when it forks: a thread that computes meanwhile may
hold a lock of a library, which its child would wait for.
"""

import argparse
import asyncio
import faulthandler
import json
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from fuzz.mutations import IDS, make_corpus
from thresher.errors import ForkedProcessError
from thresher.server.app import make_app
from thresher.server.config import ServerConfig
from thresher.serving.numpy_predictor import NumpyPredictor
from thresher.serving.predictor import Predictor

TIMEOUT = 20  # seconds of one child
ROWS = [{"user": str(number % 30), "item": str(number % 45)} for number in range(300)]
MANY = np.repeat(IDS, 20_000, axis=0)


class Served:
    """The ASGI application with its bundle loaded, and requests to it without a socket."""

    def __init__(self, folder: Path) -> None:
        self.app = make_app(ServerConfig(bundles={"m": str(folder)}, reload_seconds=0, access_log=False))
        self._loop, self._lifespan = asyncio.new_event_loop(), self.app.router.lifespan_context(self.app)
        self._loop.run_until_complete(self._lifespan.__aenter__())

    def close(self) -> None:
        self._loop.run_until_complete(self._lifespan.__aexit__(None, None, None))
        self._loop.close()

    def ask(self, path: str, content: Any) -> tuple[int, Any]:
        body, replies = json.dumps(content).encode(), list[Any]()
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            return next(messages, None) or await asyncio.sleep(3600)

        async def send(message: Any) -> None:
            replies.append(message)

        scope = {
            "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [(b"content-type", b"application/json")], "root_path": "", "scheme": "http",
            "server": ("localhost", 80), "client": ("localhost", 1), "http_version": "1.1",
        }  # fmt: skip
        asyncio.run(self.app(scope, receive, send))
        return replies[0]["status"], json.loads(b"".join(reply.get("body", b"") for reply in replies[1:]))


def operations(folder: Path, served: Served) -> dict[str, Callable[[], Any]]:
    """What a child does; the same objects as in the parent."""
    predictor, light = Predictor.load(folder / "bundle"), NumpyPredictor.load(folder / "bundle")
    return {
        "one row": lambda: predictor.predict(ROWS[0]),
        "rows": lambda: predictor.predict(ROWS),
        "ids": lambda: predictor.predict_ids(MANY),
        "one row, numpy": lambda: light.predict(ROWS[0]),
        "rows, numpy": lambda: light.predict(ROWS),
        "ids, numpy": lambda: light.predict_ids(MANY),
        "request": lambda: served.ask("/predict", ROWS),
        "load": lambda: Predictor.load(folder / "bundle").predict(ROWS[1]),
        "frame": lambda: predictor.predict(pl.DataFrame(ROWS)),
        "file": lambda: predictor.predict(folder / "rows.csv"),
        "unusual number": lambda: predictor.predict({"user": 1e-9, "item": "1"}),
        "frame, numpy": lambda: light.predict(pl.DataFrame(ROWS)),
    }


REFUSED = ("frame", "file", "unusual number", "frame, numpy")


def main(children: int, out: Path | None = None) -> int:
    torch.set_num_threads(max(torch.get_num_threads(), 2))
    with tempfile.TemporaryDirectory() as name:
        make_corpus(Path(name))
        served = Served(Path(name) / "bundle")
        work = operations(Path(name), served)
        expected = {what: run() for what, run in work.items()}
        torch.randn(1000, 1000) @ torch.randn(1000, 1000)  # starts the threads of OpenMP
        outcomes: Counter[str] = Counter()
        for _ in range(children):
            outcomes[_run_child(lambda: _check(work, expected))] += 1
        served.close()
    for outcome, count in outcomes.items():
        sys.stdout.write(f"{count:>6}  {outcome}\n")
    failed = children - outcomes["answered"]
    if out is not None:
        summary = {"children": children, "violations": failed, "outcomes": dict(outcomes)}
        out.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return 1 if failed else 0


def _check(work: dict[str, Callable[[], Any]], expected: dict[str, Any]) -> None:
    for what, run in work.items():
        try:
            found = run()
        except ForkedProcessError:
            assert what in REFUSED, what
            continue
        assert what not in REFUSED, what
        if isinstance(found, tuple):
            assert found == expected[what], (what, found)
        else:  # torch may round differently on one thread
            np.testing.assert_allclose(found, expected[what], rtol=1e-5, err_msg=what)


def _run_child(check: Callable[[], None]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns that threads and fork do not mix
        child = os.fork()
    if child == 0:
        code = 1
        faulthandler.dump_traceback_later(TIMEOUT - 1)
        try:
            check()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "answered" if status == 0 else f"failed, status {status}"
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return f"no answer within {TIMEOUT} s"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fork children from a process that has used a predictor.")
    parser.add_argument("children", type=int)
    parser.add_argument("--out", type=Path, help="write the counts here, as JSON")
    given = parser.parse_args()
    sys.exit(main(given.children, given.out))
