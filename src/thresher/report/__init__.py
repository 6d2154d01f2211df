"""Frontier, tables and figures; without torch."""
