"""Models: the rows that a batch needs, and the loss of these rows."""
