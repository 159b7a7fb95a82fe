"""Word vectors in the formats of other programs, written whole or not at all."""
