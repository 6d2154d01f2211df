"""Encoded table → batches of tensors."""
