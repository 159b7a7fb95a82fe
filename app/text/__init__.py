"""Read a corpus, split it into tokens and count its vocabulary."""
