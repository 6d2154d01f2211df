"""Compact tables: the kept values of a pruned embedding and their positions. `CompactTable` works without torch."""
