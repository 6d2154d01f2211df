"""Report pages of runs and comparisons: what they show is collected here, and laid out by `report.page`."""
