"""Word vectors, beside gensim."""
