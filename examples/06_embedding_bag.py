"""Prune an nn.EmbeddingBag of multi-valued inputs (tags of a visitor) together with an nn.Embedding (pages)."""

import torch
from torch import nn

from thresher import Searcher, attach_, compact_

NUM_TAGS, NUM_PAGES, STEPS = 500, 100, 600


class Visits(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tags = nn.EmbeddingBag(NUM_TAGS, 16, mode="mean", padding_idx=0)
        self.pages = nn.Embedding(NUM_PAGES, 16)
        for table in (self.tags, self.pages):
            nn.init.normal_(table.weight, std=0.05)

    def forward(self, tags, offsets, pages):
        return (self.tags(tags, offsets) * self.pages(pages)).sum(1)


def batch(step, size=256):
    """Each visitor has one to five tags of one of three groups, and clicks on pages of that group."""
    draw = torch.Generator().manual_seed(step)
    groups, lengths = torch.randint(3, (size,), generator=draw), torch.randint(1, 6, (size,), generator=draw)
    tags = 1 + torch.randint(166, (int(lengths.sum()),), generator=draw) * 3 + groups.repeat_interleave(lengths)
    pages = torch.randint(NUM_PAGES, (size,), generator=draw)
    return (tags, lengths.cumsum(0) - lengths, pages), (pages % 3 == groups).float()


def train(model, after_step=lambda: None):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        inputs, labels = batch(step)
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(*inputs), labels).backward()
        optimizer.step()
        after_step()
    inputs, labels = batch(STEPS, size=4000)
    return ((model(*inputs) > 0) == labels.bool()).float().mean().item()


if __name__ == "__main__":
    print(f"dense: {(NUM_TAGS - 1 + NUM_PAGES) * 16:,} parameters, accuracy {train(Visits()):.3f}")
    model = Visits()
    attach_(model)
    searcher = Searcher(model, budgets=["20%", "5%"], steps=STEPS)
    train(model, after_step=searcher.step)
    for ticket in searcher.tickets:
        retrained = Visits()
        ticket.apply_(retrained)
        accuracy = train(retrained)
        for table in compact_(retrained):
            print(f"{ticket.budget} {table.name}: {table.num_parameters} parameters, {table.storage_bytes:,} bytes")
        print(f"{ticket.budget} accuracy {accuracy:.3f}")
