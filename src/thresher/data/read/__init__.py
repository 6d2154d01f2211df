"""Raw files → rows of values, with guessed columns."""
