"""Models written after the structure of RecBole's: a table of users and one of items, called, read whole, or both."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from compatibility_models.case import LENGTH, NUM_ITEMS, WIDTH, Case, generator, items, sequences

NUM_USERS = 24


def pairs(step: int) -> tuple[Tensor, Tensor]:
    return torch.randint(NUM_USERS, (32,), generator=generator(step)), items(step)


class General(nn.Module):
    """Base of the general recommenders: scores of pairs, and of all items for users as in `full_sort_predict`."""

    def __init__(self) -> None:
        super().__init__()
        self.user_embedding, self.item_embedding = nn.Embedding(NUM_USERS, WIDTH), nn.Embedding(NUM_ITEMS, WIDTH)

    def vectors(self) -> tuple[Tensor, Tensor]:
        return self.user_embedding.weight, self.item_embedding.weight

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        scores = (self.user_embedding(users) * self.item_embedding(items)).sum(1)  # calculate_loss calls the tables
        user_vectors, item_vectors = self.vectors()
        return torch.cat([scores, (user_vectors[users] @ item_vectors.T).flatten()])


class LightGCN(General):
    layers = 2

    def __init__(self) -> None:
        super().__init__()
        edges = torch.rand(NUM_USERS, NUM_ITEMS) < 0.2
        size = NUM_USERS + NUM_ITEMS
        adjacent = torch.zeros(size, size)
        adjacent[:NUM_USERS, NUM_USERS:] = edges
        adjacent += adjacent.T.clone()
        degrees = adjacent.sum(1).clamp(min=1)
        self.norm_adj = (adjacent / (degrees[:, None] * degrees).sqrt()).to_sparse()

    def propagate(self, layer: Tensor, index: int) -> Tensor:
        return torch.sparse.mm(self.norm_adj, layer)

    def vectors(self) -> tuple[Tensor, Tensor]:
        layers = [torch.cat([self.user_embedding.weight, self.item_embedding.weight])]
        for index in range(self.layers):
            layers.append(self.propagate(layers[-1], index))
        users, items = torch.stack(layers, dim=1).mean(1).split([NUM_USERS, NUM_ITEMS])
        return users, items


class NGCF(LightGCN):
    def __init__(self) -> None:
        super().__init__()
        self.sums = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(self.layers))
        self.products = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(self.layers))

    def propagate(self, layer: Tensor, index: int) -> Tensor:
        near = torch.sparse.mm(self.norm_adj, layer)
        both = self.sums[index](layer + near) + self.products[index](near * layer)
        return functional.normalize(functional.leaky_relu(both), dim=1)


class NeuMF(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user_mf_embedding, self.item_mf_embedding = nn.Embedding(NUM_USERS, WIDTH), nn.Embedding(NUM_ITEMS, WIDTH)
        self.user_mlp_embedding, self.item_mlp_embedding = nn.Embedding(NUM_USERS, 4), nn.Embedding(NUM_ITEMS, 4)
        self.mlp, self.predict = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(WIDTH + 8, 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        product = self.user_mf_embedding(users) * self.item_mf_embedding(items)
        deep = self.mlp(torch.cat([self.user_mlp_embedding(users), self.item_mlp_embedding(items)], dim=1))
        return self.predict(torch.cat([product, deep], dim=1)).squeeze(1)


class FISM(nn.Module):
    """Two tables of items, one of them read with a padding row, and biases of width 1."""

    def __init__(self) -> None:
        super().__init__()
        self.item_src_embedding = nn.Embedding(NUM_ITEMS, WIDTH, padding_idx=0)
        self.item_dst_embedding, self.bias = nn.Embedding(NUM_ITEMS, WIDTH), nn.Embedding(NUM_ITEMS, 1)

    def forward(self, history: Tensor, items: Tensor) -> Tensor:
        lengths = (history > 0).sum(1, keepdim=True).clamp(min=1)
        user = self.item_src_embedding(history).sum(1) / lengths.sqrt()
        return (user * self.item_dst_embedding(items)).sum(1) + self.bias(items).squeeze(1)


class Sequential(nn.Module):
    """Base of the sequential recommenders: the item table is looked up and is the output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.item_embedding = nn.Embedding(NUM_ITEMS, WIDTH, padding_idx=0)

    def encode(self, history: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, history: Tensor) -> Tensor:
        return torch.matmul(self.encode(history), self.item_embedding.weight.transpose(0, 1))


class SASRec(Sequential):
    def __init__(self) -> None:
        super().__init__()
        self.position_embedding = nn.Embedding(LENGTH, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)

    def encode(self, history: Tensor) -> Tensor:
        places = torch.arange(LENGTH).expand_as(history)
        hidden = self.item_embedding(history) + self.position_embedding(places)
        blocked = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        out: Tensor = self.layer(hidden, src_mask=blocked)[:, -1]
        return out


class BERT4Rec(SASRec):
    """Its table has a row more, for masked items, and its output layer multiplies with the others."""

    def __init__(self) -> None:
        super().__init__()
        self.item_embedding = nn.Embedding(NUM_ITEMS + 1, WIDTH, padding_idx=0)
        self.output_bias = nn.Parameter(torch.zeros(NUM_ITEMS))

    def forward(self, history: Tensor) -> Tensor:
        masked = history.clone()
        masked[:, -1] = NUM_ITEMS
        hidden = self.encode(masked)
        return hidden @ self.item_embedding.weight[:NUM_ITEMS].transpose(0, 1) + self.output_bias


class GRU4Rec(Sequential):
    def __init__(self) -> None:
        super().__init__()
        self.gru, self.dense = nn.GRU(WIDTH, 16, batch_first=True, bias=False), nn.Linear(16, WIDTH)

    def encode(self, history: Tensor) -> Tensor:
        out: Tensor = self.dense(self.gru(self.item_embedding(history))[0][:, -1])
        return out


class Caser(Sequential):
    def __init__(self) -> None:
        super().__init__()
        self.user_embedding = nn.Embedding(NUM_USERS, WIDTH)
        self.vertical, self.horizontal = nn.Conv2d(1, 2, (LENGTH, 1)), nn.Conv2d(1, 2, (2, WIDTH))
        self.fc = nn.Linear(2 * WIDTH + 2 + WIDTH, WIDTH)

    def encode(self, history: Tensor) -> Tensor:
        image = self.item_embedding(history).unsqueeze(1)
        across = functional.relu(self.horizontal(image).squeeze(3)).amax(2)
        user = self.user_embedding(history[:, 0])
        return self.fc(torch.cat([self.vertical(image).flatten(1), across, user], dim=1))


class FPMC(nn.Module):
    """Four tables; scores of all items come from reads of two of them."""

    def __init__(self) -> None:
        super().__init__()
        self.UI_emb, self.IU_emb = nn.Embedding(NUM_USERS, WIDTH), nn.Embedding(NUM_ITEMS, WIDTH)
        self.LI_emb, self.IL_emb = nn.Embedding(NUM_ITEMS, WIDTH, padding_idx=0), nn.Embedding(NUM_ITEMS, WIDTH)

    def forward(self, history: Tensor, users: Tensor) -> Tensor:
        return self.UI_emb(users) @ self.IU_emb.weight.T + self.LI_emb(history[:, -1]) @ self.IL_emb.weight.T


class ENMF(General):
    """Its loss sums over the whole item table."""

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        weight = self.item_embedding.weight
        gram = weight.T @ weight
        user = self.user_embedding(users)
        return torch.cat([(user * self.item_embedding(items)).sum(1), ((user @ gram) * user).sum(1)])


def cases() -> list[Case]:
    found = [Case(cls.__name__.replace("General", "BPR"), cls, pairs) for cls in (General, LightGCN, NGCF, NeuMF, ENMF)]
    found.append(Case("FISM", FISM, lambda step: (sequences(step), items(step))))
    found.append(Case("FPMC", FPMC, lambda step: (sequences(step), pairs(step)[0])))
    return found + [
        Case(cls.__name__, cls, lambda step: (sequences(step),)) for cls in (SASRec, BERT4Rec, GRU4Rec, Caser)
    ]
