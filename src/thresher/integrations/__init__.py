"""Other training engines."""
