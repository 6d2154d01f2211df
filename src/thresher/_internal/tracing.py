"""Whether code runs on tensors without memory of their own: inside torch.compile, torch.export or torch.func."""

import torch


def is_traced() -> bool:
    """Whether a graph is traced, or a function is transformed (vmap, grad, …): tensors are then wrappers."""
    return torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None
