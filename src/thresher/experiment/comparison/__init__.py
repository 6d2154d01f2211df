"""The parts of `compare`: its settings, one cell of its grid, and the points that it writes."""
