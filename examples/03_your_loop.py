"""Prune a model in your own training loop: call `searcher.step()` after each optimizer step, like a scheduler."""

import torch
from torch import nn

from thresher import Searcher, attach_, compact_, threshold_group

NUM_USERS, NUM_ITEMS, STEPS = 300, 200, 600


def batch(step):
    """Any input your model takes; here a dict."""
    draw = torch.Generator().manual_seed(step)
    users = torch.randint(NUM_USERS, (256,), generator=draw)
    items = torch.randint(NUM_ITEMS, (256,), generator=draw)
    return {"user": users, "item": items}, ((users % 3) == (items % 3)).float()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleDict({"user": nn.Embedding(NUM_USERS, 32), "item": nn.Embedding(NUM_ITEMS, 32)})
        for table in self.tables.values():
            nn.init.normal_(table.weight, std=0.05)

    def forward(self, inputs):
        return (self.tables["user"](inputs["user"]) * self.tables["item"](inputs["item"])).sum(1)


def train(model, optimizer=None, after_step=lambda: None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), 0.01)
    for step in range(STEPS):
        inputs, labels = batch(step)
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(inputs), labels).backward()
        optimizer.step()
        after_step()
    inputs, labels = batch(STEPS)
    return ((model(inputs) > 0) == labels.bool()).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(0)
    model, plain = Model(), Model()
    print(f"dense: {(NUM_USERS + NUM_ITEMS) * 32:,} parameters, accuracy {train(plain):.3f}")

    optimizer = torch.optim.AdamW(model.parameters(), 0.01)  # created before attach_, and still valid
    print("attached", [table.name for table in attach_(model)])
    optimizer.add_param_group(threshold_group(model))
    searcher = Searcher(model, budgets=["10%", "2%"], steps=STEPS)
    train(model, optimizer, after_step=searcher.step)

    for ticket in searcher.tickets:
        retrained = Model()
        ticket.apply_(retrained)  # rewinds to the initial weights and keeps the entries of the ticket
        accuracy = train(retrained)
        sizes = compact_(retrained.eval())
        print(f"{ticket.budget}: {sum(size.num_parameters for size in sizes):,} parameters, accuracy {accuracy:.3f}")
