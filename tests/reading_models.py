"""Small models after RecBole's that read the weights of their tables: LightGCN, BPR-MF and SASRec."""

import torch
from torch import nn
from torch.nn import functional

NUM_USERS, NUM_ITEMS, LENGTH = 24, 16, 5


def pairwise_loss(positive, negative):
    return -functional.logsigmoid(positive - negative).mean()


class BprMf(nn.Module):
    """Trains on called rows; `scores` multiplies with the whole item table (`full_sort_predict`)."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.users, self.items = nn.Embedding(NUM_USERS, 4), nn.Embedding(NUM_ITEMS, 4)

    def loss(self, users, items, others):
        vectors = self.users(users)
        return pairwise_loss((vectors * self.items(items)).sum(1), (vectors * self.items(others)).sum(1))

    def scores(self, users):
        return self.users(users) @ self.items.weight.T


class LightGcn(BprMf):
    """Propagates both tables over the graph of interactions; calls the tables only to regularise them."""

    def __init__(self):
        super().__init__()
        is_edge = torch.arange(NUM_USERS)[:, None] % 4 == torch.arange(NUM_ITEMS)[None] % 4
        adjacent = torch.zeros(NUM_USERS + NUM_ITEMS, NUM_USERS + NUM_ITEMS)
        adjacent[:NUM_USERS, NUM_USERS:] = is_edge
        adjacent += adjacent.T.clone()
        degrees = adjacent.sum(1).clamp(min=1)
        self.register_buffer("graph", (adjacent / (degrees[:, None] * degrees).sqrt()).to_sparse(), persistent=False)

    def propagate(self):
        layer = torch.cat([self.users.weight, self.items.weight])
        layers = [layer, one := torch.sparse.mm(self.graph, layer), torch.sparse.mm(self.graph, one)]
        return torch.stack(layers).mean(0).split([NUM_USERS, NUM_ITEMS])

    def loss(self, users, items, others):
        user_vectors, item_vectors = self.propagate()
        vectors = user_vectors[users]
        loss = pairwise_loss((vectors * item_vectors[items]).sum(1), (vectors * item_vectors[others]).sum(1))
        return loss + 1e-3 * (self.users(users).square().mean() + self.items(items).square().mean())

    def scores(self, users):
        user_vectors, item_vectors = self.propagate()
        return user_vectors[users] @ item_vectors.T


class SasRec(nn.Module):
    """Attention over the items of a sequence; the item table is also the output layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.items, self.positions = nn.Embedding(NUM_ITEMS, 4, padding_idx=0), nn.Embedding(LENGTH, 4)
        self.attention = nn.MultiheadAttention(4, 1, batch_first=True)

    def loss(self, users, items, others):
        return functional.cross_entropy(self.scores(users), items)

    def scores(self, users):
        sequences = (users[:, None] + torch.arange(LENGTH)) % (NUM_ITEMS - 1) + 1
        vectors = self.items(sequences) + self.positions.weight
        blocked = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        attended, _ = self.attention(vectors, vectors, vectors, attn_mask=blocked, need_weights=False)
        return attended[:, -1] @ self.items.weight.transpose(0, 1)


READING_MODELS = [BprMf, LightGcn, SasRec]


def train(model, optimizer, num_steps, after_step=lambda: None):
    """Users and items interact if they are equal modulo 4."""
    for step in range(num_steps):
        draw = torch.Generator().manual_seed(step)
        users = torch.randint(NUM_USERS, (32,), generator=draw)
        items = users % 4 + 4 * torch.randint(NUM_ITEMS // 4, (32,), generator=draw)
        others = (items + 1 + torch.randint(3, (32,), generator=draw)) % NUM_ITEMS
        optimizer.zero_grad()
        model.loss(users, items, others).backward()
        optimizer.step()
        after_step()
