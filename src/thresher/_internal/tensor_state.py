"""The tensors a model holds, apart from what else its modules keep in their state."""

from collections.abc import Mapping

from torch import Tensor, nn


def tensor_state(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model's `state_dict`; what else its modules put there (`get_extra_state`) is left out."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def load_tensor_state_(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load what `tensor_state` gave; what the model holds beside tensors stays as it is."""
    same_names = state.keys() == tensor_state(model).keys()
    model.load_state_dict(dict(state), strict=not same_names)  # strict: torch says which names are wrong
