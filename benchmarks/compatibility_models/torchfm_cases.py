"""The models of torchfm (pytorch-fm)."""

import importlib
from typing import Any

import numpy as np

from compatibility_models.case import FIELD_SIZES, WIDTH, Case, fields

MLP = (16,)
MODELS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "AFI": ("afi.AutomaticFeatureInteractionModel", (WIDTH, 16, 2, 1, MLP, (0.0, 0.0, 0.0))),
    "AFM": ("afm.AttentionalFactorizationMachineModel", (WIDTH, 8, (0.0, 0.0))),
    "AFN": ("afn.AdaptiveFactorizationNetwork", (WIDTH, 16, MLP, (0.0, 0.0, 0.0))),
    "DCN": ("dcn.DeepCrossNetworkModel", (WIDTH, 2, MLP, 0.0)),
    "DeepFM": ("dfm.DeepFactorizationMachineModel", (WIDTH, MLP, 0.0)),
    "FFM": ("ffm.FieldAwareFactorizationMachineModel", (WIDTH,)),
    "FM": ("fm.FactorizationMachineModel", (WIDTH,)),
    "FNFM": ("fnfm.FieldAwareNeuralFactorizationMachineModel", (WIDTH, MLP, (0.0, 0.0))),
    "FNN": ("fnn.FactorizationSupportedNeuralNetworkModel", (WIDTH, MLP, 0.0)),
    "LR": ("lr.LogisticRegressionModel", ()),
    "NCF": ("ncf.NeuralCollaborativeFiltering", (np.array([0]), np.array([1]), WIDTH, (16, 8), 0.0)),
    "NFM": ("nfm.NeuralFactorizationMachineModel", (WIDTH, MLP, (0.0, 0.0))),
    "PNN (inner)": ("pnn.ProductNeuralNetworkModel", (WIDTH, MLP, 0.0, "inner")),
    "PNN (outer)": ("pnn.ProductNeuralNetworkModel", (WIDTH, MLP, 0.0, "outer")),
    "Wide & Deep": ("wd.WideAndDeepModel", (WIDTH, MLP, 0.0)),
    "xDeepFM": ("xdfm.ExtremeDeepFactorizationMachineModel", (WIDTH, MLP, 0.0, (8, 8))),
}


def cases() -> list[Case]:
    found = []
    for name, (path, arguments) in MODELS.items():
        module, model = path.split(".")
        cls = getattr(importlib.import_module(f"torchfm.model.{module}"), model)
        found.append(
            Case(
                name,
                lambda cls=cls, arguments=arguments: cls(FIELD_SIZES, *arguments),  # type: ignore[misc]
                lambda step: (fields(step),),
                min_embedding_dim=1 if name == "LR" else 2,
            )
        )
    return found
