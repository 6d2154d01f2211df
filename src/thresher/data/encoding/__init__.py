"""The two passes of `encode`: raw chunks → provisional codes on disk → feature ids. Nothing here is public."""
