"""The tensors of a model's state, without other extra state."""

from collections.abc import Mapping

from torch import Tensor, nn


def tensor_state(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model's `state_dict`, without other objects from `get_extra_state`."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def load_tensor_state_(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Load a state of `tensor_state`; extra state of the model does not change."""
    same_names = state.keys() == tensor_state(model).keys()
    model.load_state_dict(dict(state), strict=not same_names)  # strict: torch lists the wrong names
