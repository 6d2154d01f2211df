"""Adding rows for new ids to a ticket, so that it fits a model with larger tables."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from thresher.attach.extend import Growth, Start, extend_dense, extend_entries
from thresher.errors import ConfigError
from thresher.search.ticket import MaskTicket, Weights


def extend_ticket(
    ticket: MaskTicket, growth: Mapping[str, Growth], start: Mapping[str, Start] | None = None
) -> MaskTicket:
    """A ticket for a model with more features.

    Args:
        growth: table name → its growth; also for tables that were not searched, such as first-order weights.
        start: table name → initial values of its new rows; by default those of the unknown feature, or zeros in a
            table without one. Nonzero entries of given rows are kept. Zeros are not kept, so they are not trained,
            unless the whole table is kept.
    """
    start = {} if start is None else start
    masks, known = dict(ticket.masks), {*ticket.masks, *(key.removesuffix(".weight") for key in ticket.initial.state)}
    if missing := sorted((growth.keys() | start.keys()) - known):
        raise ConfigError(f"the ticket has no table {', '.join(missing)}. It prunes {', '.join(masks)}.")
    for name in growth.keys() & masks.keys():
        positions, _ = _extend_kept(ticket, ticket.initial, name, growth[name], start)
        masks[name] = torch.zeros(sum(growth[name].new_sizes), masks[name].shape[1], dtype=torch.bool)
        masks[name].view(-1)[positions] = True
    both = []
    for weights in (ticket.initial, ticket.final):
        values, state = dict(weights.values), dict(weights.state)
        for name, grown in growth.items():
            if name in masks:
                values[name] = _extend_kept(ticket, weights, name, grown, start)[1]
            else:
                state[f"{name}.weight"] = extend_dense(state[f"{name}.weight"], grown, start.get(name))
        both.append(Weights(values, state))
    return replace(ticket, masks=masks, initial=both[0], final=both[1])


def _extend_kept(
    ticket: MaskTicket, weights: Weights, name: str, growth: Growth, start: Mapping[str, Start]
) -> tuple[Tensor, Tensor]:
    """Positions and values of a table's kept entries after extension."""
    mask = ticket.masks[name]
    growth.check_table(len(mask))
    kept = mask.reshape(-1).nonzero().squeeze(1)
    return extend_entries(kept, weights.values[name], mask.shape[1], growth, start.get(name))
