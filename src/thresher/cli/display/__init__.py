"""What the command line prints: results, notes, errors and progress."""
