"""SharedState: a tensor that several modules hold is in the model's `state_dict` once."""

from typing import Any

from torch import Tensor, nn


class SharedState(nn.Module):
    """Mixin for modules that hold tensors of another module of the same model.

    Formats such as safetensors refuse tensors that share memory, so a `state_dict` contains them under the name of the
    first module only.
    """

    shared_names: frozenset[str] = frozenset()  # tensors of this module that another one holds and saves

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        saved = {value.data_ptr() for value in destination.values() if isinstance(value, Tensor)}
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in self.shared_names:  # unless this module is saved alone
            if destination[prefix + name].data_ptr() in saved:
                del destination[prefix + name]

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        missing: list[str] = []
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected_keys, error_msgs)
        missing_keys += [key for key in missing if key.removeprefix(prefix) not in self.shared_names]
