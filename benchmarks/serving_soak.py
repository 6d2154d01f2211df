"""Ten minutes of full load on `thresher serve`, with reloads, clients that vanish and malformed bodies.

    python benchmarks/serving_soak.py [--seconds 600] [--workers 1]

Every answer is compared with `Predictor` of the two bundles that take turns. Fails on a wrong answer, on a status 5xx
other than 503, on a bundle that was not reloaded, and if resident memory grows by more than 5 % after the first third.
"""

import argparse
import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from io import BytesIO
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from served_model import make_model
from serving import memory_bytes, server
from thresher import load_bundle

PARQUET, STREAM = "application/vnd.apache.parquet", "application/vnd.apache.arrow.stream"
GROWTH = 0.05


class Soak:
    """What all threads share: the requests with their right answers, and what was seen."""

    def __init__(self, folder: Path) -> None:
        models = [make_model(folder / str(seed), num_features=20_000, density=0.05, seed=seed) for seed in (0, 1)]
        self.versions = [model.bundle for model in models]
        self.live = folder / "live"
        self.switch(0)
        predictors = [load_bundle(model.bundle) for model in models]
        self.cases: list[tuple[bytes, str, list[np.ndarray]]] = []
        for at in range(60):
            rows = models[0].rows((1, 8, 64)[at % 3], seed=at)
            expected = [np.asarray(predictor.predict(rows)) for predictor in predictors]
            kind = ("application/json", PARQUET, STREAM)[at % 5 % 3]
            self.cases.append((encode(rows, kind), kind, expected))
        self.stop, self.seen = threading.Event(), Counter[str]()
        self.errors: list[str] = []

    def switch(self, version: int) -> None:
        """Point the live bundle at another version, in one step."""
        link = self.live.with_name("next")
        link.symlink_to(self.versions[version])
        link.replace(self.live)

    def ask(self, port: int, seed: int) -> None:
        """Right requests; every answer is that of one of the two versions."""
        draw, connection = random.Random(seed), http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while not self.stop.is_set():
            body, kind, expected = draw.choice(self.cases)
            try:
                connection.request("POST", "/predict", body, {"Content-Type": kind, "Accept": "application/json"})
                reply = connection.getresponse()
                content = json.loads(reply.read())
            except (OSError, http.client.HTTPException) as error:
                self.errors.append(f"connection: {error!r}")
                connection.close()
                continue
            self.seen[f"status {reply.status}"] += 1
            if reply.status == 503:
                continue
            if reply.status != 200:
                self.errors.append(f"status {reply.status}: {content}")
                continue
            found = np.asarray(content["probabilities"])
            version = [at for at, right in enumerate(expected) if np.allclose(found, right, atol=1e-6)]
            self.seen[f"version {version[0]}" if version else "wrong"] += 1
            if not version:
                self.errors.append(f"wrong answer: {found[:3]} for {[right[:3] for right in expected]}")

    def disturb(self, port: int, seed: int) -> None:
        """Bodies with random changes, and clients that leave in the middle of a request."""
        draw = random.Random(seed)
        while not self.stop.is_set():
            body, kind, _ = draw.choice(self.cases)
            try:
                if draw.random() < 0.4:
                    with socket.create_connection(("127.0.0.1", port), timeout=60) as gone:
                        head = (
                            f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
                        )
                        gone.sendall((f"{head}\r\n\r\n".encode() + body)[: draw.randrange(len(body))])
                    self.seen["vanished"] += 1
                    continue
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                connection.request("POST", "/predict", damage(body, draw), {"Content-Type": kind})
                status = connection.getresponse().status
                connection.close()
            except (OSError, http.client.HTTPException) as error:
                self.errors.append(f"connection: {error!r}")
                continue
            self.seen[f"malformed {status}"] += 1
            if status >= 500 and status != 503:
                self.errors.append(f"status {status} for a malformed body")
            time.sleep(0.01)

    def reload(self) -> None:
        version = 0
        while not self.stop.wait(5):
            version = 1 - version
            self.switch(version)
            self.seen["switches"] += 1


def encode(rows: list[dict[str, Any]], kind: str) -> bytes:
    if kind == "application/json":
        return json.dumps(rows).encode()
    out = BytesIO()
    frame = pl.DataFrame(rows)
    frame.write_parquet(out) if kind == PARQUET else frame.write_ipc_stream(out)
    return out.getvalue()


def damage(body: bytes, draw: random.Random) -> bytes:
    changed = bytearray(body)
    for _ in range(draw.randint(1, 8)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed[: draw.randrange(len(changed))] if draw.random() < 0.3 else changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--clients", type=int, default=4)
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        soak = Soak(Path(folder))
        words = ["-m", "thresher", "serve", str(soak.live), "-q", "--reload-seconds", "0.5"]
        with server([*words, "--workers", str(arguments.workers)]) as (port, pid, _):
            works = [*([soak.ask] * arguments.clients), soak.disturb]
            threads = [threading.Thread(target=work, args=(port, seed)) for seed, work in enumerate(works)]
            threads.append(threading.Thread(target=soak.reload))
            for thread in threads:
                thread.start()
            memory, end = [], time.monotonic() + arguments.seconds
            while time.monotonic() < end and len(soak.errors) < 10:
                time.sleep(min(1.0, arguments.seconds / 30))
                memory.append(memory_bytes(pid))
            soak.stop.set()
            for thread in threads:
                thread.join(90)
    third = len(memory) // 3
    before, after = median(memory[third : 2 * third]), median(memory[2 * third :])
    growth = after / before - 1
    print(json.dumps({"seen": dict(sorted(soak.seen.items())), "memory_before": before, "memory_after": after}))
    if growth > GROWTH:
        soak.errors.append(f"resident memory grew by {growth:.1%}")
    if not (soak.seen["version 0"] and soak.seen["version 1"]):
        soak.errors.append("the bundle was not reloaded")
    if soak.errors:
        raise SystemExit("\n".join(soak.errors[:10]))
    print(f"{sum(soak.seen.values()):,} requests, no wrong answer; memory changed by {growth:+.1%}")


if __name__ == "__main__":
    main()
