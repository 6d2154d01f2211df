"""A mask ticket as a `state_dict`: nested dicts of tensors and plain data, for checkpoints in other people's formats.

Thresher's own files are the ticket folder's (`store`); this is for `torch.save` and Lightning in a user's loop.
"""

from typing import Any

from thresher.search.budget import Budget
from thresher.search.ticket import MaskTicket, Provenance, Weights


def ticket_state(ticket: MaskTicket) -> dict[str, Any]:
    """All of a ticket, such that `torch.load(…, weights_only=True)` can read it."""
    return {
        "budget": str(ticket.budget),
        "masks": dict(ticket.masks),
        "initial": {"values": dict(ticket.initial.values), "state": dict(ticket.initial.state)},
        "final": {"values": dict(ticket.final.values), "state": dict(ticket.final.state)},
        "provenance": {**vars(ticket.provenance), "config": dict(ticket.provenance.config)},
    }


def ticket_from_state(state: dict[str, Any]) -> MaskTicket:
    """The ticket `ticket_state` was given."""
    return MaskTicket(
        budget=Budget.parse(state["budget"]),
        masks=state["masks"],
        initial=Weights(**state["initial"]),
        final=Weights(**state["final"]),
        provenance=Provenance(**state["provenance"]),
    )
