"""Files on disk: atomic and durable writes, locks, JSON and TOML with limits, checksums of folders."""
