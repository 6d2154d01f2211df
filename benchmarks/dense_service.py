"""The service that people write today: FastAPI, a dense PyTorch model, a Python dict for each vocabulary.

    python benchmarks/dense_service.py FOLDER --port 8001 [--workers 2]

FOLDER as written by `served_model.write_dense`. Uses no code of Thresher.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import Body, FastAPI
from torch import Tensor, nn


class DeepFm(nn.Module):
    def __init__(self, num_features: int, num_fields: int, width: int, hidden: list[int]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_features, width)
        self.first_order = nn.Embedding(num_features, 1)
        self.bias = nn.Parameter(torch.zeros(1))
        layers: list[nn.Module] = []
        size = num_fields * width
        for wide in hidden:
            layers += [nn.Linear(size, wide), nn.BatchNorm1d(wide), nn.ReLU()]
            size = wide
        self.deep = nn.Sequential(*layers, nn.Linear(size, 1))

    def forward(self, ids: Tensor) -> Tensor:
        vectors = self.embedding(ids)
        fm = 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1)
        return self.first_order(ids).sum((1, 2)) + self.bias + fm + self.deep(vectors.flatten(1)).squeeze(1)


def make_app() -> FastAPI:
    folder = Path(os.environ["DENSE_SERVICE"])
    content = json.loads((folder / "vocabularies.json").read_text())
    columns, vocabularies, offsets = content["columns"], content["vocabularies"], content["offsets"]
    model = DeepFm(*content["shape"])
    model.load_state_dict(torch.load(folder / "model.pt"))
    model.eval()
    app = FastAPI()

    @app.post("/predict")
    def predict(body: Any = Body()) -> dict[str, Any]:  # noqa: B008
        rows = [body] if isinstance(body, dict) else body
        ids = [
            [
                offset + known.get(str(row[name]), 0)
                for name, known, offset in zip(columns, vocabularies, offsets, strict=True)
            ]
            for row in rows
        ]
        with torch.inference_mode():
            probabilities = torch.sigmoid(model(torch.tensor(ids))).tolist()
        return {"probability": probabilities[0]} if isinstance(body, dict) else {"probabilities": probabilities}

    @app.get("/ready")
    def ready() -> dict[str, bool]:
        return {"ready": True}

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    os.environ["DENSE_SERVICE"] = arguments.folder
    uvicorn.run(
        "dense_service:make_app",
        factory=True,
        port=arguments.port,
        workers=arguments.workers,
        access_log=False,
        log_level="warning",
    )
