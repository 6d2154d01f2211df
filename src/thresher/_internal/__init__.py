"""Atomic files and locks, settings ↔ TOML, registries, memory-mapped tensors: nothing that users import."""
