"""CompactTable + model → files others can run."""
