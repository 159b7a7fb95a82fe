"""Output layers for large vocabularies, beside TensorFlow's."""
