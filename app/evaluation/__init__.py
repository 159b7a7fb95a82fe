"""Scores of word vectors, each with the protocol that it was taken under."""
