"""Prune a two-tower model (BPR loss): `python 07_two_tower.py ml-1m/ratings.dat`; by default made-up ratings."""

import sys

import polars as pl
import torch
from torch import nn

from thresher import Searcher, attach_, compact_

BATCH_SIZE, EPOCHS = 4096, 20


def made_up_ratings():  # users with an even id like movies with an even id, the others those with an odd id
    rows = [(u, m, (31 * u + 17 * m) % 97) for u in range(60) for m in range(60) if (3 * u + 5 * m) % 7 < 4]
    return "".join(f"{user}::{movie}::{5 if user % 2 == movie % 2 else 2}::{time}\n" for user, movie, time in rows)


def read_likes(file):
    """Ratings of 4 and 5 as ids (user, movie) by user and time, and which of them is each user's last."""
    columns = ["user", "", "movie", "_", "rating", "__", "time"]  # split at single colons
    rows = pl.read_csv(file, separator=":", has_header=False, new_columns=columns).filter(pl.col("rating") >= 4)
    pairs = rows.sort("user", "time").select(pl.col("user", "movie").rank("dense").cast(pl.Int64) - 1).to_torch()
    return pairs, torch.cat([pairs[1:, 0] != pairs[:-1, 0], torch.tensor([True])])


def new_model(num_users, num_movies):
    torch.manual_seed(0)
    tables = {"users": torch.randn(num_users, 64), "movies": torch.randn(num_movies, 64)}
    return nn.ModuleDict({name: nn.Embedding.from_pretrained(0.05 * table, False) for name, table in tables.items()})


def hit_rate(model, pairs, last, sizes, after_step=lambda: None):
    """Train, then return the share of users whose last movie is among their ten best new movies."""
    optimizer, known = torch.optim.Adam(model.parameters(), lr=0.005), pairs[~last]
    for _ in range(EPOCHS):
        for users, liked in (rows.T for rows in known[torch.randperm(len(known))].split(BATCH_SIZE)):
            difference = model["movies"](liked) - model["movies"](torch.randint(sizes[1], liked.shape))
            optimizer.zero_grad()
            nn.functional.softplus(-(model["users"](users) * difference).sum(1)).mean().backward()
            optimizer.step()
            after_step()
    with torch.no_grad():
        scores = model["users"](torch.arange(sizes[0])) @ model["movies"](torch.arange(sizes[1])).T
        scores[known[:, 0], known[:, 1]] = -torch.inf
        return (scores.topk(10).indices == pairs[last, 1:]).any(1).float().mean().item()


if __name__ == "__main__":
    pairs, last = read_likes(sys.argv[1] if len(sys.argv) > 1 else made_up_ratings().encode())
    sizes = (pairs.amax(0) + 1).tolist()
    print(f"dense {sum(sizes) * 64:,} parameters: hit rate at 10 {hit_rate(new_model(*sizes), pairs, last, sizes):.4f}")
    attach_(model := new_model(*sizes))
    searcher = Searcher(model, budgets=["20%", "5%"], steps=EPOCHS * -(-int((~last).sum()) // BATCH_SIZE))
    hit_rate(model, pairs, last, sizes, after_step=searcher.step)
    for ticket in searcher.tickets:
        ticket.apply_(pruned := new_model(*sizes))
        rate = hit_rate(pruned, pairs, last, sizes)
        print(f"{ticket.budget}: {sum(table.num_parameters for table in compact_(pruned)):,} parameters: {rate:.4f}")
