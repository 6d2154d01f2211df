"""The ticket folder: `ticket.json`, `mask.safetensors` (a bit an entry), `initial.safetensors`, `final.safetensors`."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from thresher.errors import FormatError
from thresher.files import read_json, replacing_folder, write_json
from thresher.tickets.budget import Budget
from thresher.tickets.ticket import MaskTicket, Provenance, Weights

FORMAT = "thresher.mask-ticket"
VERSION = 1


def save_ticket(ticket: MaskTicket, folder: Path) -> None:
    """Write a ticket; an older one at the same place is replaced as a whole."""
    with replacing_folder(folder) as beside:
        save_file({name: _pack(mask) for name, mask in ticket.masks.items()}, beside / "mask.safetensors")
        save_file(_flat(ticket.initial), beside / "initial.safetensors")
        save_file(_flat(ticket.final), beside / "final.safetensors")
        write_json(
            beside / "ticket.json",
            {
                "format": FORMAT,
                "version": VERSION,
                "budget": str(ticket.budget),
                "num_parameters": ticket.num_parameters,
                "tables": {name: list(mask.shape) for name, mask in ticket.masks.items()},
                "provenance": vars(ticket.provenance),
            },
        )


def load_ticket(folder: Path) -> MaskTicket:
    """Read a ticket back; a damaged or foreign folder is a `FormatError`."""
    facts = read_json(folder / "ticket.json")
    if facts.get("format") != FORMAT or facts.get("version") != VERSION:
        raise FormatError(
            f"{folder} holds {facts.get('format')!r} version {facts.get('version')!r}; "
            f"this release reads {FORMAT!r} version {VERSION}"
        )
    try:
        bits = load_file(folder / "mask.safetensors")
        masks = {name: _unpack(bits[name], shape) for name, shape in facts["tables"].items()}
        ticket = MaskTicket(
            budget=Budget.parse(facts["budget"]),
            masks=masks,
            initial=_weights(load_file(folder / "initial.safetensors"), masks),
            final=_weights(load_file(folder / "final.safetensors"), masks),
            provenance=Provenance(**facts["provenance"]),
        )
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        raise FormatError(f"ticket {folder} is damaged ({error}); search again to write it anew") from None
    if ticket.num_parameters != facts["num_parameters"]:
        raise FormatError(f"ticket {folder} is damaged: its mask keeps {ticket.num_parameters} entries, "
                          f"not {facts['num_parameters']}; search again to write it anew")  # fmt: skip
    return ticket


def _pack(mask: Tensor) -> Tensor:
    return torch.from_numpy(np.packbits(mask.cpu().numpy(), axis=None))


def _unpack(bits: Tensor, shape: list[int]) -> Tensor:
    num_rows, num_columns = shape
    count = num_rows * num_columns
    if bits.dtype != torch.uint8 or bits.numel() != -(-count // 8):
        raise ValueError(f"mask of {bits.numel()} bytes for a table of {num_rows} × {num_columns}")
    return torch.from_numpy(np.unpackbits(bits.numpy(), count=count).astype(bool).reshape(shape))


def _flat(weights: Weights) -> dict[str, Tensor]:
    named = {f"values/{name}": values for name, values in weights.values.items()}
    named |= {f"state/{name}": value for name, value in weights.state.items()}
    return {name: value.detach().cpu().contiguous() for name, value in named.items()}


def _weights(tensors: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> Weights:
    values = {name: tensors[f"values/{name}"] for name in masks}
    for name, mask in masks.items():
        if values[name].shape != (int(mask.sum()),):
            raise ValueError(f"{values[name].numel()} values for {int(mask.sum())} kept entries of {name!r}")
    state = {name.removeprefix("state/"): value for name, value in tensors.items() if name.startswith("state/")}
    return Weights(values, state)
