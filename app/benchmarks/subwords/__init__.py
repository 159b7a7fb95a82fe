"""Word vectors with subwords, beside fastText."""
