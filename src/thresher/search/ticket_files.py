"""Tickets as folders, and mask tickets as a `state_dict`.

A ticket folder holds `ticket.json`, whose `format` names the kind of ticket. A mask ticket adds `mask.safetensors` (one
bit per entry), a size ticket `groups.safetensors`; both add weights, `initial.safetensors` and `final.safetensors`.
`manifest.json` lists the files with their checksums. Tickets of version 1 have none.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from thresher._internal.mapped_tensors import load_tensors
from thresher._internal.settings import config_from_mapping, config_to_mapping
from thresher._internal.storage.documents import damaged_file
from thresher._internal.storage.files import atomic_folder, read_json, write_json
from thresher._internal.storage.folder_manifest import open_manifest, read_unchanged, write_manifest
from thresher.attach.extend import Growth, Start, extend_dense, extend_entries
from thresher.embeddings.base import EmbeddingConfig
from thresher.embeddings.feature_groups import FeatureRuns
from thresher.errors import ConfigError, FormatError
from thresher.search.budget import Budget
from thresher.search.ticket import MaskTicket, Provenance, SettingsTicket, SizeTicket, TableSizes, Ticket, Weights

VERSION = 2
ARTEFACT = "ticket"
REMEDY = "Delete the ticket and search again."
Metadata = dict[str, Any]


def save_ticket(ticket: Ticket, folder: str | Path) -> None:
    """Write a ticket; an existing folder is replaced as a whole."""
    with atomic_folder(Path(folder)) as beside:
        kind, metadata = _write(ticket, beside)
        write_json(
            beside / "ticket.json",
            {
                "format": f"thresher.{kind}-ticket",
                "version": VERSION,
                "budget": str(ticket.budget),
                "num_parameters": ticket.num_parameters,
                **metadata,
                "provenance": vars(ticket.provenance),
            },
        )
        write_manifest(beside, ARTEFACT)


def load_ticket(folder: str | Path) -> Ticket:
    """Read a ticket; raises `FormatError` if the folder is damaged or is not a ticket."""
    place = Path(folder)
    return read_unchanged(place, lambda: _load_ticket(place))


def _load_ticket(folder: Path) -> Ticket:
    metadata = read_json(folder / "ticket.json")
    kind, version = metadata.get("format"), metadata.get("version")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None or version not in (1, VERSION):
        raise FormatError(
            f"{folder} holds {str(kind)[:80]!r} version {str(version)[:20]}; this release reads {', '.join(_READERS)} "
            f"version {VERSION}"
        )
    manifest = open_manifest(folder, ARTEFACT, required=version != 1, remedy=REMEDY)
    if manifest is not None:
        manifest.check_sizes()
        manifest.verify()
    with damaged_file(f"ticket {folder}", REMEDY):
        ticket = read(folder, metadata)
        if ticket.num_parameters != metadata["num_parameters"]:
            raise ValueError(
                f"it keeps {ticket.num_parameters} entries, ticket.json says {str(metadata['num_parameters'])[:40]}"
            )
    return ticket


def load_mask_ticket(folder: Path) -> MaskTicket:
    """Read a ticket and check that it is a mask ticket."""
    ticket = load_ticket(folder)
    if not isinstance(ticket, MaskTicket):
        raise FormatError(f"{folder} holds a {type(ticket).__name__}; expected a MaskTicket. Choose another folder")
    return ticket


@singledispatch
def _write(ticket: object, folder: Path) -> tuple[str, Metadata]:
    """Write the files beside `ticket.json`; returns the kind of ticket and its metadata."""
    raise TypeError(f"{type(ticket).__qualname__} is not a kind of ticket that can be stored")


@_write.register
def _(ticket: MaskTicket, folder: Path) -> tuple[str, Metadata]:
    save_file({name: _pack(mask) for name, mask in ticket.masks.items()}, folder / "mask.safetensors")
    save_file(_flat(ticket.initial), folder / "initial.safetensors")
    placeholders = {f"placeholder/{name}": vectors.contiguous() for name, vectors in ticket.placeholders.items()}
    save_file(_flat(ticket.final) | placeholders, folder / "final.safetensors")
    return "mask", {"tables": {name: list(mask.shape) for name, mask in ticket.masks.items()}}


def _read_mask(folder: Path, metadata: Metadata) -> MaskTicket:
    bits = load_tensors(folder / "mask.safetensors")
    masks = {name: _unpack(bits[name], shape) for name, shape in metadata["tables"].items()}
    final = load_tensors(folder / "final.safetensors")
    return MaskTicket(
        budget=Budget.parse(metadata["budget"]),
        masks=masks,
        initial=_weights(load_tensors(folder / "initial.safetensors"), masks),
        final=_weights(final, masks),
        provenance=_provenance(metadata["provenance"]),
        placeholders={name: final[f"placeholder/{name}"] for name in masks if f"placeholder/{name}" in final},
    )


@_write.register
def _(ticket: SettingsTicket, folder: Path) -> tuple[str, Metadata]:
    return "settings", {"storage_bytes": ticket.storage_bytes, "embedding": config_to_mapping(ticket.embedding)}


def _read_settings(folder: Path, metadata: Metadata) -> SettingsTicket:
    return SettingsTicket(
        budget=Budget.parse(metadata["budget"]),
        embedding=config_from_mapping(EmbeddingConfig, metadata["embedding"], where=str(folder / "ticket.json")),
        num_parameters=int(metadata["num_parameters"]),
        storage_bytes=int(metadata["storage_bytes"]),
        provenance=_provenance(metadata["provenance"]),
    )


@_write.register
def _(ticket: SizeTicket, folder: Path) -> tuple[str, Metadata]:
    runs = {}
    for name, table in ticket.tables.items():
        for part in ("starts", "groups", "rows"):
            runs[f"{name}/{part}"] = torch.from_numpy(getattr(table.runs, part))
    save_file(runs, folder / "groups.safetensors")
    for which, state in (("initial", ticket.initial), ("final", ticket.final)):
        tensors = {name: value.detach().cpu().contiguous() for name, value in state.items()}
        save_file(tensors, folder / f"{which}.safetensors")
    tables = {
        name: {"embedding_dim": table.embedding_dim, "sizes": table.sizes, "group_sizes": table.runs.group_sizes}
        for name, table in ticket.tables.items()
    }
    return "size", {"tables": tables}


def _read_sizes(folder: Path, metadata: Metadata) -> SizeTicket:
    runs = load_tensors(folder / "groups.safetensors")
    tables = {}
    for name, table in metadata["tables"].items():
        group_sizes = tuple(int(size) for size in table["group_sizes"])
        if min(group_sizes, default=-1) < 0 or sum(group_sizes) >= 2**31:
            raise ValueError(f"the group sizes of {name} are out of range")
        found = FeatureRuns.from_arrays(
            *(runs[f"{name}/{part}"].numpy() for part in ("starts", "groups", "rows")),
            num_groups=len(group_sizes),
            num_features=sum(group_sizes),
        )
        if found.group_sizes != group_sizes:
            raise ValueError(f"the groups of {name} have {found.group_sizes} features, not {group_sizes}")
        tables[name] = TableSizes(
            *_checked_sizes(name, table["embedding_dim"], table["sizes"], len(group_sizes)), found
        )
    return SizeTicket(
        budget=Budget.parse(metadata["budget"]),
        tables=tables,
        initial=load_tensors(folder / "initial.safetensors"),
        final=load_tensors(folder / "final.safetensors"),
        num_parameters=int(metadata["num_parameters"]),
        provenance=_provenance(metadata["provenance"]),
    )


def _checked_sizes(name: str, embedding_dim: Any, sizes: Any, num_groups: int) -> tuple[int, tuple[int, ...]]:
    """The width of a table and the size of each of its groups."""
    is_valid = isinstance(sizes, list) and len(sizes) == num_groups and type(embedding_dim) is int
    if not is_valid or not all(type(size) is int and 0 <= size <= embedding_dim < 2**31 for size in sizes):
        raise ValueError(f"sizes of {name}: {str(sizes)[:80]}, for {num_groups} groups of width {embedding_dim!s:.20}")
    return embedding_dim, tuple(sizes)


_READERS: Mapping[str, Callable[[Path, Metadata], Ticket]] = {
    "thresher.mask-ticket": _read_mask,
    "thresher.settings-ticket": _read_settings,
    "thresher.size-ticket": _read_sizes,
}


def _provenance(entry: Mapping[str, Any]) -> Provenance:
    found = Provenance(**entry)
    numbers = (found.seed, found.step, found.epoch)
    is_valid = isinstance(found.method, str) and isinstance(found.config, dict)
    if not is_valid or not all(type(number) is int for number in numbers):
        raise ValueError("its provenance is not a method, three integers and settings")
    return found


def _pack(mask: Tensor) -> Tensor:
    return torch.from_numpy(np.packbits(mask.cpu().numpy(), axis=None))


def _unpack(bits: Tensor, shape: list[int]) -> Tensor:
    if len(shape) != 2 or not all(type(length) is int and 0 <= length < 2**40 for length in shape):
        raise ValueError(f"a table of shape {str(shape)[:80]}")
    count = shape[0] * shape[1]
    if bits.dtype != torch.uint8 or bits.numel() != -(-count // 8):
        raise ValueError(f"mask of {bits.numel()} bytes for a table of {shape[0]} × {shape[1]}")
    return torch.from_numpy(np.unpackbits(bits.numpy(), count=count).astype(bool).reshape(shape))


def _flat(weights: Weights) -> dict[str, Tensor]:
    named = {f"values/{name}": values for name, values in weights.values.items()}
    named |= {f"state/{name}": value for name, value in weights.state.items()}
    return {name: value.detach().cpu().contiguous() for name, value in named.items()}


def _weights(tensors: Mapping[str, Tensor], masks: Mapping[str, Tensor]) -> Weights:
    values = {name: tensors[f"values/{name}"] for name in masks}
    for name, mask in masks.items():
        num_kept = int(mask.count_nonzero())
        if values[name].shape != (num_kept,):
            raise ValueError(f"{values[name].numel()} values for {num_kept} kept entries of {name!r}")
    state = {name.removeprefix("state/"): value for name, value in tensors.items() if name.startswith("state/")}
    return Weights(values, state)


def mask_ticket_state(ticket: MaskTicket) -> dict[str, Any]:
    """Nested dicts of tensors and plain data, readable by `torch.load(…, weights_only=True)`."""
    return {
        "budget": str(ticket.budget),
        "masks": dict(ticket.masks),
        "initial": {"values": dict(ticket.initial.values), "state": dict(ticket.initial.state)},
        "final": {"values": dict(ticket.final.values), "state": dict(ticket.final.state)},
        "provenance": {**vars(ticket.provenance), "config": dict(ticket.provenance.config)},
        "placeholders": dict(ticket.placeholders),
    }


def mask_ticket_from_state(state: Mapping[str, Any]) -> MaskTicket:
    return MaskTicket(
        budget=Budget.parse(state["budget"]),
        masks=state["masks"],
        initial=Weights(**state["initial"]),
        final=Weights(**state["final"]),
        provenance=Provenance(**state["provenance"]),
        placeholders=state.get("placeholders", {}),
    )


def extend_ticket(
    ticket: MaskTicket, growth: Mapping[str, Growth], start: Mapping[str, Start] | None = None
) -> MaskTicket:
    """A ticket for a model with more features.

    Args:
        growth: table name → its growth; also for tables that were not searched, such as first-order weights.
        start: table name → initial values of its new rows (default: those of the unknown feature, or zeros if there
            is none). Their zeros are neither kept nor trained, unless the whole table is kept.
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
