"""Prune your own nn.Module with Thresher's training loop: pass its batches, get a pruned model for each size."""

import torch
from torch import nn

from thresher import OptimizerConfig, SearchConfig, SplitBatches, TensorBatches, TrainingConfig, prune_model


class Recommender(nn.Module):
    """Two tables, prices as dense inputs, and an MLP; it contains no code for pruning."""

    def __init__(self, num_users, num_items, dim):
        super().__init__()
        self.users, self.items = nn.Embedding(num_users, dim), nn.Embedding(num_items, dim)
        for table in (self.users, self.items):
            nn.init.normal_(table.weight, std=0.05)
        self.mlp = nn.Sequential(nn.Linear(2 * dim + 1, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, users, items, price):
        user, item = self.users(users), self.items(items)
        return (user * item).sum(1) + self.mlp(torch.cat([user, item, price], dim=1)).squeeze(1)


def clicks(num_rows, seed, shuffle=None):
    draw = torch.Generator().manual_seed(seed)
    users = torch.randint(100, (num_rows,), generator=draw)
    items = torch.randint(60, (num_rows,), generator=draw)
    price = torch.rand(num_rows, 1, generator=draw)
    labels = ((users % 3) == (items % 3)) | (price[:, 0] < 0.1)
    return TensorBatches((users, items, price), labels, batch_size=256, seed=shuffle)


if __name__ == "__main__":
    torch.manual_seed(0)
    data = SplitBatches(train=clicks(10_000, seed=1, shuffle=0), validation=clicks(2000, seed=2), test=clicks(2000, 3))
    fast = OptimizerConfig(learning_rate=0.005)
    result = prune_model(
        Recommender(100, 60, dim=16),
        data,
        "20%,5%",
        search=SearchConfig(plan_epochs=8, optimizer=fast),  # short for a small example
        training=TrainingConfig(optimizer=fast),
    )
    for table in result.tables:
        print(f"searched {table.name}: {table.num_features} × {table.embedding_dim}")
    for name, trained in {"dense": result.dense, **result.pruned}.items():
        print(f"{name:>6} {trained.num_parameters:>6,} parameters  test AUC {trained.test.auc:.4f}")
