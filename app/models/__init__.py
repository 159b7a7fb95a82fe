"""Models: which rows a batch needs, and what loss they give."""
