"""The models of Torch-RecHub: ranking, matching, multi-task and generative."""

from typing import Any

import torch
from torch import Tensor, nn

from compatibility_models.case import BATCH, FIELD_SIZES, LENGTH, NUM_ITEMS, WIDTH, Case, fields, items, sequences

MLP = {"dims": [16], "dropout": 0.0}
TOWER = {"dims": [16, 8], "dropout": 0.0}
NAMES = [f"field_{k}" for k in range(len(FIELD_SIZES))]


def batch(step: int) -> tuple[dict[str, Tensor]]:
    ids, history = fields(step), sequences(step)
    inputs = {name: ids[:, k] for k, name in enumerate(NAMES)}
    return (
        inputs
        | {"item": items(step), "pos_item": items(step), "neg_item": items(step + 1), "history": history}
        | {"neg_items": sequences(step + 2).clamp(min=1)[:, :3], "seq": history, "pos": sequences(step + 3)}
        | {"neg": sequences(step + 4), "neg_history": sequences(step + 5), "weight": torch.rand(BATCH) + 0.5},
    )


def first(outputs: Any) -> Tensor:
    """One float tensor of outputs: some models return several."""
    if isinstance(outputs, Tensor):
        return outputs
    return torch.cat([one.flatten() for one in outputs if isinstance(one, Tensor) and one.is_floating_point()])


def cases() -> list[Case]:
    from torch_rechub.basic.features import DenseFeature, SequenceFeature, SparseFeature
    from torch_rechub.models import generative, matching, multi_task, ranking
    from torch_rechub.models.matching import dssm_senet

    def call(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        return first(model(inputs))

    def sparse() -> list[Any]:
        return [SparseFeature(name, size, embed_dim=WIDTH) for name, size in zip(NAMES, FIELD_SIZES, strict=True)]

    def item(name: str = "item") -> Any:
        return SparseFeature(name, NUM_ITEMS, embed_dim=WIDTH, shared_with=None if name == "item" else "item")

    def history(name: str = "history", pooling: str = "concat", shared: str | None = "item") -> Any:
        return SequenceFeature(name, NUM_ITEMS, WIDTH, pooling=pooling, shared_with=shared, padding_idx=0)

    def negatives() -> Any:
        return SequenceFeature("neg_items", NUM_ITEMS, WIDTH, pooling="concat", shared_with="item")

    def user() -> list[Any]:
        return [sparse()[0]]

    def linear() -> list[Any]:
        return [SparseFeature(f"{name}", size, embed_dim=1) for name, size in zip(NAMES, FIELD_SIZES, strict=True)]

    tasks = ["classification", "classification"]
    towers = [{"dims": [8]}, {"dims": [8]}]
    built = {
        "WideDeep": lambda: ranking.WideDeep(sparse(), sparse(), MLP),
        "DeepFM": lambda: ranking.DeepFM(sparse(), sparse(), MLP),
        "DCN": lambda: ranking.DCN(sparse(), 2, MLP),
        "DCNv2": lambda: ranking.DCNv2(sparse(), 2, MLP),
        "EDCN": lambda: ranking.EDCN(sparse(), 2, {"dropout": 0.0}),
        "AFM": lambda: ranking.AFM(sparse(), WIDTH),
        "FiBiNet": lambda: ranking.FiBiNet(sparse(), MLP),
        "DeepFFM": lambda: ranking.DeepFFM(linear(), wide(), WIDTH, MLP),
        "FatDeepFFM": lambda: ranking.FatDeepFFM(linear(), wide(), WIDTH, 2, MLP),
        "AutoInt": lambda: ranking.AutoInt(sparse(), [], 2, 2),
        "BST": lambda: ranking.BST(user(), [history()], [item()], MLP, nhead=2, dropout=0.0, max_seq_len=LENGTH + 1),
        "DIN": lambda: ranking.DIN(user(), [history()], [item()], MLP, {"dims": [8]}),
        "DSSM": lambda: matching.DSSM(user(), [item()], TOWER, TOWER),
        "DSSM (SENet)": lambda: dssm_senet.DSSM(sparse()[:2], sparse()[1:], TOWER, TOWER),
        "FaceBookDSSM": lambda: matching.FaceBookDSSM(
            user(), [item(), item("pos_item")], [item(), item("neg_item")], TOWER, TOWER
        ),
        "YoutubeDNN": lambda: matching.YoutubeDNN(user(), [item()], [negatives()], TOWER),
        "YoutubeSBC": lambda: matching.YoutubeSBC(
            user(), [item()], [DenseFeature("weight")], TOWER, TOWER, BATCH
        ),
        "MIND": lambda: matching.MIND(user(), [history()], [item()], [negatives()], LENGTH),
        "GRU4Rec": lambda: matching.GRU4Rec(
            user(), [history()], [item()], [negatives()], {"dims": [16, WIDTH], "dropout": 0.0}
        ),
        "NARM": lambda: matching.NARM(history(), 8, 0.0, 0.0),
        "SASRec": lambda: matching.SASRec(
            [history("seq", shared=None), history("pos", shared="seq"), history("neg", shared="seq")],
            max_len=LENGTH, dropout_rate=0.0, num_blocks=1, num_heads=1,
        ),
        "SINE": lambda: matching.SINE(["history"], ["item"], ["neg_items"], NUM_ITEMS, WIDTH, 8, 6, 2, LENGTH),
        "STAMP": lambda: matching.STAMP(history(), 0.1, 0.1),
        "ComirecSA": lambda: matching.ComirecSA(user(), [history()], [item()], [negatives()]),
        "ComirecDR": lambda: matching.ComirecDR(user(), [history()], [item()], [negatives()], LENGTH),
        "SharedBottom": lambda: multi_task.SharedBottom(sparse(), tasks, {"dims": [16]}, towers),
        "ESMM": lambda: multi_task.ESMM(sparse()[:2], sparse()[2:], {"dims": [8]}, {"dims": [8]}),
        "MMOE": lambda: multi_task.MMOE(sparse(), tasks, 2, {"dims": [8]}, towers),
        "PLE": lambda: multi_task.PLE(sparse(), tasks, 1, 1, 1, {"dims": [8]}, towers),
        "AITM": lambda: multi_task.AITM(sparse(), 2, {"dims": [32]}, towers),
    }  # fmt: skip

    def wide() -> list[Any]:
        sizes = [rows * len(FIELD_SIZES) for rows in FIELD_SIZES]  # a row for each pair of feature and field
        return [SparseFeature(name, rows, embed_dim=WIDTH) for name, rows in zip(NAMES, sizes, strict=True)]

    found = [Case(name, construct, batch, call) for name, construct in built.items()]
    found.append(Case("DIEN", lambda: dien(ranking, user(), history(), history("neg_history"), item()), batch, call))

    def of_sequence(model: nn.Module, ids: Tensor) -> Tensor:
        return first(model(ids))

    found.append(
        Case(
            "HSTU",
            lambda: generative.HSTUModel(NUM_ITEMS, 16, 2, 1, 8, 8, LENGTH, 0.0),
            lambda step: (sequences(step),),
            of_sequence,
        )
    )
    found.append(
        Case(
            "HLLM",
            lambda: generative.HLLMModel(torch.randn(NUM_ITEMS, 16), NUM_ITEMS, 16, 2, 1, LENGTH, 0.0),
            lambda step: (sequences(step),),
            of_sequence,
        )
    )
    found.append(
        Case(
            "RQ-VAE",
            lambda: generative.RQVAEModel(16, [8, 8], 4, [8], sk_epsilons=[0.0, 0.0]),
            lambda step: (torch.randn(BATCH, 16, generator=torch.Generator().manual_seed(step)),),
            lambda model, vectors: first(model(vectors)[0]),
        )
    )
    return found


def dien(ranking: Any, user: list[Any], history: Any, negative: Any, item: Any) -> nn.Module:
    model: nn.Module = ranking.DIEN(user, [history], [negative], [item], MLP)
    return model
