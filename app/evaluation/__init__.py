"""Scores of word vectors, each with the protocol of its measurement."""
