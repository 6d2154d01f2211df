"""Training loop, checkpoints, optimizers, distillation."""
