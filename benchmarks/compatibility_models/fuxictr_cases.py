"""Models written after the structure of FuxiCTR's: a dictionary of tables by feature, some shared, one pooled."""

import torch
from torch import Tensor, nn

from compatibility_models.case import FIELD_SIZES, NUM_ITEMS, WIDTH, Case, fields, sequences

SIZES = {"user": FIELD_SIZES[0], "genre": FIELD_SIZES[1], "item": NUM_ITEMS}
Batch = dict[str, Tensor]


def batch(step: int) -> tuple[Batch]:
    ids, history = fields(step), sequences(step)
    return ({"user": ids[:, 0], "genre": ids[:, 1], "item": history[:, 0], "history": history},)


class FeatureEmbeddingDict(nn.Module):
    """`FeatureEmbedding`: an `nn.ModuleDict` of tables; `history` shares the table of `item` and is averaged."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding_layers = nn.ModuleDict(
            {name: nn.Embedding(size, width, padding_idx=0) for name, size in SIZES.items()}
        )
        self.embedding_layers["history"] = self.embedding_layers["item"]

    def forward(self, inputs: Batch) -> Tensor:
        vectors = []
        for name, layer in self.embedding_layers.items():
            found = layer(inputs[name])
            if name == "history":
                mask = (inputs[name] > 0).unsqueeze(2)
                found = (found * mask).sum(1) / mask.sum(1).clamp(min=1)
            vectors.append(found)
        return torch.stack(vectors, dim=1)  # [B, F, D]


class LogisticRegression(nn.Module):
    """Tables of width 1."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding_layer, self.bias = FeatureEmbeddingDict(1), nn.Parameter(torch.zeros(1))

    def forward(self, inputs: Batch) -> Tensor:
        return self.embedding_layer(inputs).sum((1, 2)) + self.bias


class FM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lr_layer, self.embedding_layer = LogisticRegression(), FeatureEmbeddingDict(WIDTH)

    def forward(self, inputs: Batch) -> Tensor:
        vectors = self.embedding_layer(inputs)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        out: Tensor = self.lr_layer(inputs) + pairs
        return out


class Deep(nn.Module):
    """Base of the models that flatten the vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding_layer, self.input_dim = FeatureEmbeddingDict(WIDTH), 4 * WIDTH
        self.mlp = nn.Sequential(nn.Linear(self.input_dim, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, inputs: Batch) -> Tensor:
        return torch.sigmoid(self.mlp(self.embedding_layer(inputs).flatten(1)))


class DeepFM(Deep):
    def __init__(self) -> None:
        super().__init__()
        self.fm = FM()
        self.fm.embedding_layer = self.embedding_layer  # both parts look up the same tables

    def forward(self, inputs: Batch) -> Tensor:
        return torch.sigmoid(self.fm(inputs).unsqueeze(1) + self.mlp(self.embedding_layer(inputs).flatten(1)))


class DCNv2(Deep):
    def __init__(self) -> None:
        super().__init__()
        self.cross = nn.ModuleList(nn.Linear(self.input_dim, self.input_dim) for _ in range(2))

    def forward(self, inputs: Batch) -> Tensor:
        first = crossed = self.embedding_layer(inputs).flatten(1)
        for layer in self.cross:
            crossed = first * layer(crossed) + crossed
        return torch.sigmoid(self.mlp(crossed))


class FinalMLP(Deep):
    """Two streams, each gated by a context."""

    def __init__(self) -> None:
        super().__init__()
        self.context = FeatureEmbeddingDict(4)
        self.gate, self.other = nn.Linear(16, self.input_dim), nn.Linear(self.input_dim, 16)
        self.fusion = nn.Bilinear(16, 16, 1)

    def forward(self, inputs: Batch) -> Tensor:
        flat = self.embedding_layer(inputs).flatten(1)
        gated = flat * torch.sigmoid(self.gate(self.context(inputs).flatten(1)))
        return torch.sigmoid(self.fusion(self.mlp[:2](gated), torch.relu(self.other(flat))))


class DIN(Deep):
    """Attention of the target item over the history; both use the table of `item`."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.Linear(4 * WIDTH, 8), nn.Sigmoid(), nn.Linear(8, 1))

    def forward(self, inputs: Batch) -> Tensor:
        vectors, table = self.embedding_layer(inputs), self.embedding_layer.embedding_layers["item"]
        history = table(inputs["history"])
        target = table(inputs["item"]).unsqueeze(1).expand_as(history)
        weights = self.attention(torch.cat([target, history, target - history, target * history], dim=2))
        pooled = (weights * history * (inputs["history"] > 0).unsqueeze(2)).sum(1, keepdim=True)
        return torch.sigmoid(self.mlp(torch.cat([vectors[:, :3], pooled], dim=1).flatten(1)))


class AutoInt(Deep):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, inputs: Batch) -> Tensor:
        vectors = self.embedding_layer(inputs)
        return torch.sigmoid(self.mlp(self.attention(vectors, vectors, vectors)[0].relu().flatten(1)))


def cases() -> list[Case]:
    found = [Case("LR", LogisticRegression, batch, min_embedding_dim=1)]
    models = {
        "FM": FM,
        "DNN": Deep,
        "DeepFM": DeepFM,
        "DCNv2": DCNv2,
        "FinalMLP": FinalMLP,
        "DIN": DIN,
        "AutoInt": AutoInt,
    }
    return found + [Case(name, cls, batch) for name, cls in models.items()]
