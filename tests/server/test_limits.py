"""What happens around requests: overload, slow and vanished clients, reloads, worker processes, signals."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from thresher.errors import ConfigError, FormatError
from thresher.server.config import ServerConfig, parse_bundles
from thresher.server.run import run_server
from thresher.serving.predictor import load_bundle


def wait_until(done, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def test_more_predictions_than_allowed_are_refused(bundle_folders, start_server, row):
    with start_server(bundles=bundle_folders, max_concurrent=1) as client:
        with socket.create_connection(("127.0.0.1", client.port)) as slow:
            slow.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            wait_until(lambda: client.post("/predict", row)[0] == 503)
            status, found, headers = client.ask("POST", "/predict", row)
            assert (status, headers["retry-after"], "busy" in found["error"]) == (503, "1", True)
            assert client.get("/health") == {"status": "ok"}
        wait_until(lambda: client.post("/predict", row)[0] == 200)  # the slow client is gone, its slot is free


def test_a_body_that_does_not_arrive(bundle_folders, start_server):
    with (
        start_server(bundles=bundle_folders, body_seconds=0.2) as client,
        socket.create_connection(("127.0.0.1", client.port)) as slow,
    ):
        slow.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        slow.settimeout(30)
        assert slow.recv(1000).startswith(b"HTTP/1.1 408")


def test_a_large_body_without_a_length(bundle_folders, start_server):
    with (
        start_server(bundles=bundle_folders, max_body_bytes=1000) as client,
        socket.create_connection(("127.0.0.1", client.port)) as sender,
    ):
        sender.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        sender.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
        sender.settimeout(30)
        assert sender.recv(1000).startswith(b"HTTP/1.1 413")


def test_a_changed_bundle_is_reloaded_while_requests_go_on(tmp_path, write_bundle, start_server, row):
    folder = write_bundle(tmp_path / "live")
    answers = [load_bundle(folder).predict(row)]
    with start_server(bundles={"live": folder}, reload_seconds=0.1) as client:
        statuses, found, stop = set(), set(), threading.Event()

        def keep_asking():
            while not stop.is_set():
                status, content = client.post("/predict", row)
                statuses.add(status)
                found.add(round(content["probability"], 5))

        asking = threading.Thread(target=keep_asking)
        asking.start()
        try:
            write_bundle(folder, seed=7)
            answers.append(load_bundle(folder).predict(row))
            wait_until(lambda: round(answers[1], 5) in found)
            (folder / "network.safetensors").write_bytes(b"damaged")
            os.utime(folder / "bundle.json", ns=(1, 1))
            wait_until(lambda: client.get("/ready")["bundles"]["live"]["reload_failed"])
            shutil.rmtree(folder)
            assert client.post("/predict", row)[0] == 200  # the loaded one stays in service
            write_bundle(folder, "fm", seed=8)
            answers.append(load_bundle(folder).predict(row))
            wait_until(lambda: round(answers[2], 5) in found)
        finally:
            stop.set()
            asking.join()
        assert statuses == {200}
        assert found == {round(answer, 5) for answer in answers}
        assert client.get("/ready")["bundles"]["live"]["reload_failed"] is None


def start_process(folder, *words):
    """The command, where importing torch fails in every process."""
    (folder / "torch.py").write_text("raise ImportError('torch is not needed')\n")
    command = [sys.executable, "-m", "thresher", "serve", *map(str, words)]
    paths = os.pathsep.join([str(folder), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ask_socket(path, request):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect(str(path))
        connection.sendall(request)
        reply = b""
        while part := connection.recv(65536):
            reply += part
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def accepts(path):
    try:
        return ask_socket(path, request_bytes("/ready", method="GET"))[0] == 200
    except OSError:
        return False


def request_bytes(path, body=b"", method="POST"):
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@pytest.mark.slow
def test_the_command_serves_all_models_without_torch(tmp_path, write_bundle, row):
    """Also: a unix socket, several workers with common metrics, the access log, and a graceful end."""
    folders = [write_bundle(tmp_path / name, name) for name in ("lr", "fm", "deepfm", "autoint")]
    path = tmp_path / "socket"
    (tmp_path / "without").mkdir()
    process = start_process(tmp_path / "without", *folders, "--socket", path, "--workers", 2)
    try:
        wait_until(lambda: process.poll() is not None or accepts(path), 60)
        for folder in folders:
            status, body = ask_socket(path, request_bytes(f"/predict?bundle={folder.name}", json.dumps(row).encode()))
            assert status == 200
            assert json.loads(body)["probability"] == pytest.approx(load_bundle(folder).predict(row), abs=1e-6)
        for _ in range(6):
            status, body = ask_socket(path, request_bytes("/metrics", method="GET"))
            assert b'thresher_requests_total{endpoint="/predict",status="200"} 4.0' in body
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    lines = [json.loads(line) for line in out.splitlines()]
    lines = [line for line in lines if line["path"] == "/predict"]
    assert sorted(line["bundle"] for line in lines) == sorted(folder.name for folder in folders)
    assert {"time", "method", "status", "milliseconds", "rows", "bytes"} <= set(lines[0])


def test_bundles_and_settings_are_checked_before_the_start(tmp_path, bundle_folders):
    assert parse_bundles(["a/b", "x=c"]).keys() == {"b", "x"}
    with pytest.raises(ConfigError, match="two bundles are called 'b'"):
        parse_bundles(["a/b", "c/b"])
    with pytest.raises(ConfigError, match="default is 'z'; the bundles are a"):
        ServerConfig(bundles={"a": "a"}, default="z")
    for wrong in ({"workers": 0}, {"port": 99999}, {"engine": "gpu"}, {"reload_seconds": -1}, {"body_seconds": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            ServerConfig(bundles={"a": "a"}, **wrong)
    with pytest.raises(FormatError):
        run_server(ServerConfig(bundles={"a": str(tmp_path)}))
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is not a socket"):
        run_server(ServerConfig(bundles={"a": str(bundle_folders["small"])}, socket=str(tmp_path / "file")))
