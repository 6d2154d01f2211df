"""Latency, rows per second, memory and start of serving, against the service that people write today.

    python benchmarks/serving.py [--quick] [--workers 1 2]

Both sides serve the same DeepFM of Criteo's size (1,086,810 features, D = 64), of which ours keeps 1 %: in process
`Predictor`, `NumpyPredictor`, ONNX Runtime from raw values, and PyTorch's quantized rows behind our encoder; over HTTP
`thresher serve`, with and without numba; and FastAPI with a dense PyTorch model and Python dicts as vocabularies. A
client process on loopback sends a fixed number of requests; the servers take turns within each round. The script first
checks that all answers agree. On a busy machine only the ratios mean something. Needs the extras `serve` and `onnx`,
and fastapi.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from served_model import CRITEO_FEATURES, ServedModel, make_model

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "speed"))

from measure import QUICK_RESULTS, RESULTS, print_table, write_result  # noqa: E402

from thresher import NumpyPredictor, load_bundle  # noqa: E402
from thresher.serving.exports.torch_quantized import export_quantized  # noqa: E402
from thresher.serving.few_rows import encode_few  # noqa: E402


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def server(command: list[str], *first_paths: Path) -> Iterator[tuple[int, int, float]]:
    """Start a server; gives its port, its process and the seconds until it was ready."""
    port = free_port()
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([*map(str, first_paths), *filter(None, sys.path), str(HERE)]),
    }
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command, "--port", str(port)], env=environment)
    try:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5).close()
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"{command} ended with {process.returncode}") from None
                time.sleep(0.02)
        yield port, process.pid, time.perf_counter() - start
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def memory_bytes(pid: int) -> int:
    """Proportional resident memory of a process and its children: shared pages count once."""
    total, pids = 0, [pid]
    for one in pids:
        children = Path(f"/proc/{one}/task/{one}/children").read_text().split()
        pids += [int(child) for child in children]
        lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
        total += next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total


def request(port: int, body: Any) -> Any:
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/predict", data, headers)) as reply:
        return json.load(reply)


def client(port: int, bodies: Path, num_requests: int, connections: int) -> dict[str, Any]:
    command = [sys.executable, HERE / "http_load.py", str(port), bodies]
    words = ["--requests", str(num_requests), "--connections", str(connections)]
    done = subprocess.run([*map(str, command), *words], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure_http(model: ServedModel, folder: Path, rounds: int, requests: int, workers: list[int]) -> dict[str, Any]:
    single, batch = folder / "single.json", folder / "batch.json"
    single.write_text(json.dumps(model.rows(200)))
    batch.write_text(json.dumps([model.rows(64, seed) for seed in range(20)]))
    figures: dict[str, Any] = {}
    (folder / "without").mkdir()
    (folder / "without" / "numba.py").write_text("raise ImportError('not installed')\n")
    for num in workers:
        ours = ["-m", "thresher", "serve", str(model.bundle), "-q"]
        commands = {
            f"thresher serve, {num} workers": ours,
            f"thresher serve without numba, {num} workers": ours,
            f"FastAPI and dense PyTorch, {num} workers": [str(HERE / "dense_service.py"), str(model.dense)],
        }
        with ExitStack() as stack:
            found = {}
            for name, command in commands.items():
                paths = [folder / "without"] if "without numba" in name else []
                port, pid, seconds = stack.enter_context(server([*command, "--workers", str(num)], *paths))
                figures[name] = {"start_seconds": round(seconds, 3)}
                found[name] = (port, pid, [], [], [])
            answers = [request(port, model.rows(64))["probabilities"] for port, *_ in found.values()]
            for answer in answers[1:]:
                np.testing.assert_allclose(answers[0], answer, atol=1e-5)
            for port, *_ in found.values():
                client(port, batch, 20, 2)  # warm
            for _ in range(rounds):
                for port, _, alone, loaded, rates in found.values():
                    alone += client(port, single, requests, 1)["milliseconds"]
                    result = client(port, batch, requests // 4, 4)
                    loaded += result["milliseconds"]
                    rates.append(64 * (requests // 4) / result["seconds"])
            for name, (_, pid, alone, loaded, rates) in found.items():
                figures[name] |= latencies(alone, "single_row") | latencies(loaded, "batch_of_64")
                figures[name] |= {"rows_per_second": round(float(np.median(rates)))}
                figures[name] |= {"memory_megabytes": round(memory_bytes(pid) / 1e6, 1)}
    return figures


def latencies(milliseconds: list[float], name: str) -> dict[str, float]:
    p50, p99 = np.percentile(milliseconds, [50, 99])
    return {f"{name}_p50_ms": round(float(p50), 3), f"{name}_p99_ms": round(float(p99), 3)}


def onnx_predict(model: ServedModel, folder: Path) -> Callable[[Any], Any]:
    """Rows → probabilities by ONNX Runtime, from raw values."""
    import onnxruntime

    from thresher.serving.exports.onnx_raw import export_raw_onnx

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(export_raw_onnx(model.bundle, folder / "model.onnx"), options)
    names = [each.name for each in session.get_inputs()]

    def predict(rows: Any) -> Any:
        rows = [rows] if isinstance(rows, dict) else rows
        return session.run(None, {name: np.array([row[name] for row in rows], object) for name in names})[0]

    return predict


def quantized_predict(model: ServedModel, folder: Path, encoder: NumpyPredictor) -> Callable[[Any], Any]:
    """Rows → probabilities by PyTorch's quantized rows; Thresher encodes."""
    program = torch.export.load(export_quantized(model.bundle, folder / "model.pt2")).module()

    def predict(rows: Any) -> Any:
        encoded = encode_few(encoder._dict_rows, [rows] if isinstance(rows, dict) else rows, None)
        assert encoded is not None
        with torch.inference_mode():
            return program(torch.from_numpy(encoded.ids).long()).numpy()

    return predict


def measure_in_process(model: ServedModel, folder: Path, rounds: int, requests: int) -> dict[str, Any]:
    without_torch = NumpyPredictor.load(model.bundle)
    rows, batch = model.rows(200), model.rows(64)
    works: dict[str, Callable[[Any], Any]] = {
        "Predictor": load_bundle(model.bundle).predict,
        "NumpyPredictor": without_torch.predict,
        "ONNX Runtime, raw values": onnx_predict(model, folder),
        "PyTorch's quantized rows": quantized_predict(model, folder, without_torch),
    }
    expected = works["Predictor"](batch)
    for name, work in works.items():
        np.testing.assert_allclose(work(batch), expected, atol=0.02 if "quantized" in name else 1e-6)
    alone: dict[str, list[float]] = {name: [] for name in works}
    loaded: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            for at in range(requests):
                alone[name].append(timed(work, rows[at % len(rows)]))
            loaded[name] += [timed(work, batch) for _ in range(requests // 4)]
    return {
        name: latencies(alone[name], "single_row")
        | latencies(loaded[name], "batch_of_64")
        | {"rows_per_second": round(64_000 / float(np.median(loaded[name])))}
        for name in works
    }


def timed(work: Callable[[Any], Any], rows: Any) -> float:
    start = time.perf_counter()
    work(rows)
    return 1000 * (time.perf_counter() - start)


def ratios(figures: dict[str, Any], workers: list[int]) -> dict[str, float]:
    found = {}
    for num in workers:
        ours, theirs = figures[f"thresher serve, {num} workers"], figures[f"FastAPI and dense PyTorch, {num} workers"]
        found |= {
            f"rows_per_second_over_dense_{num}_workers": ours["rows_per_second"] / theirs["rows_per_second"],
            f"dense_p99_over_ours_{num}_workers": theirs["batch_of_64_p99_ms"] / ours["batch_of_64_p99_ms"],
            f"dense_memory_over_ours_{num}_workers": theirs["memory_megabytes"] / ours["memory_megabytes"],
            f"dense_start_over_ours_{num}_workers": theirs["start_seconds"] / ours["start_seconds"],
        }
        lean = figures[f"thresher serve without numba, {num} workers"]
        found |= {
            f"rows_per_second_over_dense_without_numba_{num}_workers": lean["rows_per_second"]
            / theirs["rows_per_second"],
            f"dense_memory_over_ours_without_numba_{num}_workers": theirs["memory_megabytes"]
            / lean["memory_megabytes"],
        }
    return {name: round(value, 3) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="40,000 features and few requests")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    num_features = 40_000 if arguments.quick else CRITEO_FEATURES
    rounds, requests = (1, 40) if arguments.quick else (5, 1000)
    with TemporaryDirectory() as folder:
        model = make_model(Path(folder), num_features=num_features)
        size = sum(path.stat().st_size for path in model.bundle.rglob("*") if path.is_file())
        figures = measure_in_process(model, Path(folder), rounds, requests)
        figures |= measure_http(model, Path(folder), rounds, requests, arguments.workers)
    print_table(figures)
    settings = {
        "num_features": num_features, "density": 0.01, "rounds": rounds, "requests": requests, "bundle_bytes": size,
    }  # fmt: skip
    results = QUICK_RESULTS if arguments.quick else RESULTS
    write_result("serving", settings, figures, ratios(figures, arguments.workers), results / "serving.json")


if __name__ == "__main__":
    main()
