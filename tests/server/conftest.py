"""A real server in a thread of this process, on a port of its own, and a client."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")

from thresher.compact.embedding import CompactEmbedding  # noqa: E402
from thresher.data.encode.row_encoder import RowEncoder, Vocabulary  # noqa: E402
from thresher.data.schema import DenseColumn, Field, Label, Schema  # noqa: E402
from thresher.models.model_registry import build_model, model_config  # noqa: E402
from thresher.server.app import make_app  # noqa: E402
from thresher.server.config import ServerConfig  # noqa: E402
from thresher.serving.bundle import save_bundle  # noqa: E402

VALUES = {
    "city": ["Köln", "Ulm", "Bonn", ""],
    "age": [str(number) for number in range(30)],
    "device": ["phone", "laptop", "tablet"],
    "genres": ["drama", "comedy", "action"],
}
ROW = {"city": "Köln", "age": 3, "device": "phone", "genres": ["drama", "action"], "price": 9.5}


@pytest.fixture(scope="session")
def write_bundle() -> Callable[..., Path]:
    """A bundle with single-valued fields, a multi-valued one and a dense column; weights by the seed."""

    def write(folder: Path, name: str = "deepfm", seed: int = 0, **metadata: Any) -> Path:
        torch.manual_seed(seed)
        vocabularies = [Vocabulary(pl.Series("value", v), np.arange(len(v), 0, -1)) for v in VALUES.values()]
        bag = {"pooling": "mean", "separator": "|"}
        fields = [Field(name=n, size=len(v) + 1, **(bag if n == "genres" else {})) for n, v in VALUES.items()]
        dense = (DenseColumn(name="price", mean=10.0, scale=4.0),)
        schema = Schema(fields=tuple(fields), label=Label(column="clicked"), dense=dense)
        mask = torch.rand(schema.num_features, 8) < 0.8
        embedding = CompactEmbedding.from_mask(schema.field_sizes, mask, torch.randn(mask.shape) * 0.5)
        config = model_config(name)
        model = build_model(embedding, config, num_dense=1).eval()
        return save_bundle(folder, model, config, RowEncoder(schema, vocabularies), metadata=metadata)

    return write


@dataclass
class Client:
    port: int

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
        """Status, content (JSON as Python values) and headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, content, named)
            response = connection.getresponse()
            data = response.read()
        finally:
            connection.close()
        is_json = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(data) if is_json else data, dict(response.headers)

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        return self.ask("POST", path, body, **headers)[:2]

    def get(self, path: str) -> Any:
        status, content, _ = self.ask("GET", path)
        assert status == 200, content
        return content


@contextmanager
def serving(config: ServerConfig) -> Iterator[Client]:
    server = uvicorn.Server(
        uvicorn.Config(make_app(config), host="127.0.0.1", port=0, log_level="error", access_log=False)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 60
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.01)
    try:
        yield Client(server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="session")
def start_server() -> Callable[..., Any]:
    def start(**settings: Any) -> Any:
        settings["bundles"] = {name: str(folder) for name, folder in settings["bundles"].items()}
        return serving(ServerConfig(**{"access_log": False, "reload_seconds": 0, **settings}))

    return start


@pytest.fixture(scope="session")
def bundle_folders(tmp_path_factory: pytest.TempPathFactory, write_bundle: Callable[..., Path]) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bundles")
    return {
        "small": write_bundle(folder / "small", "deepfm", test_auc=0.75),
        "attention": write_bundle(folder / "attention", "autoint", 1),
    }


@pytest.fixture(scope="session")
def client(bundle_folders: dict[str, Path], start_server: Callable[..., Any]) -> Iterator[Client]:
    with start_server(bundles=bundle_folders, max_rows=50, max_body_bytes=20_000) as client:
        yield client


@pytest.fixture
def row() -> dict[str, Any]:
    return dict(ROW)
